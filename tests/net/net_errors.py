"""Bad inputs of the golden net: each has one error text, which a user reads in the terminal."""

from __future__ import annotations

from typing import Any

from net_sessions import SESSIONS, Session

CONFIGS: dict[str, tuple[str, str, str]] = {
    "audit": ("generated audit", "audit.yaml", "audit"),
    "failures": ("labelled failures", "failures.yaml", "failures"),
    "dataset": ("dataset", "dataset.yaml", "dataset build"),
    "prompts": ("prompts", "prompts.yaml", "prompts"),
    "clip-bias": ("clip bias", "clip_bias.yaml", "clip-bias"),
    "latent": ("latent", "latent.yaml", "latent"),
    "evaluate": ("evaluate", "evaluate.yaml", "evaluate"),
}
"""Kind of config → the session that has a right one, its file, and the command that reads it."""
MISSING = object()
FIELDS: tuple[Any, ...] = ({"unknown_key": 1}, -1, [], MISSING)
"""What stands in each field of a config in turn."""
REQUIRED = {
    "task", "classes", "labels", "classifier", "images", "captions", "subjects", "generators", "language_model",
    "judge", "models", "datasets", "generator", "target", "latents", "truth",
}  # fmt: skip
"""The fields without which a config is refused."""
FILES: dict[str, Any] = {
    "empty": "",
    "not YAML": "task: [unclosed",
    "a list": ["task"],
    "two documents": "task: a\n---\ntask: b\n",
    "a tag": "task: !!python/object:os.system ls\n",
}
COMMANDS = (
    "audit missing.yaml",
    "audit .",
    "audit",
    "nothing",
    "report missing",
    "report .",
    "gate missing --fail-on against",
    "gate . --fail-on nonsense",
    "compare missing missing",
    "export missing --format csv",
    "export . --format nonsense",
    "ask missing 'a bus'",
    "index build --images missing --encoder world:clip --out index",
    "index build --images . --encoder world:clip --out index",
    "index build --images . --encoder nonsense --out index",
    "index search missing 'a bus'",
    "dataset verify missing",
    "dataset show missing",
    "dataset export missing --format imagefolder --out out",
    "dataset evaluate missing --classifiers world:resnet-control-0 --out out",
    "failures ask missing 'a bus'",
    "models nonsense",
    "world sample --out scenes.csv -n 0",
    "world latent labels nonsense --out labels.parquet",
    "audit audit.yaml --via nowhere",
    "audit audit.yaml --placement missing.yaml",
    "remote jobs",
)
SPECS = (
    "nonsense", "timm:", "world:nothing", "onnx:missing.onnx", "hf:local-dir:missing", "table:missing.csv",
    "open_clip:ViT-B-32", "timm:resnet18?weights=missing.safetensors", "torchvision:resnet18?nonsense=1",
    "world:resnet-control-0?precision=fp7", "photos.onnx", "huggingface:org/name", "https://",
)  # fmt: skip
"""Classifiers of an audit that cannot be loaded."""


def bad_inputs() -> dict[str, Session]:
    """Returns name → session with one command that fails."""
    result: dict[str, Session] = {}
    for kind, (session, file, command) in CONFIGS.items():
        right = SESSIONS[session].files[file]
        for name in [*right, "unknown"]:
            for number, value in enumerate(FIELDS[:1] if name == "unknown" else FIELDS):
                changed = {key: old for key, old in right.items() if key != name}
                if value is MISSING and (name not in REQUIRED or (kind, name) == ("evaluate", "classes")):
                    continue
                if value is not MISSING:
                    changed[name] = value
                result[f"{kind}: {name} {number}"] = Session({file: changed}, (f"{command} {file} --out run",))
        for name, text in FILES.items():
            result[f"{kind}: {name}"] = Session({file: text}, (f"{command} {file} --out run",))
    audit = SESSIONS["generated audit"].files["audit.yaml"]
    for spec in SPECS:
        files = {"audit.yaml": {**audit, "classifier": spec}}
        result[f"classifier {spec}"] = Session(files, ("audit audit.yaml --out run",))
    for command in COMMANDS:
        result[command] = Session({"audit.yaml": audit}, (command,))
    return result
