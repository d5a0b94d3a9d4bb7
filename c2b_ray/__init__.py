"""c2b-ray: finds where an image classifier fails, from one sentence about its task and no labelled data.

>>> import c2b_ray
>>> run = c2b_ray.audit("audit.yaml")       # a path, a mapping, or an AuditConfig
>>> c2b_ray.audit("audit.yaml", classifier=answer, labels=["bus", "tram"])     # a model in memory; see InMemory
>>> c2b_ray.find_failures("failures.yaml").hypotheses                          # captions that make it fail
>>> c2b_ray.clip_bias("clip_bias.yaml").biases                                 # of CLIP models, and their transfer
>>> run.scores                               # tables as Arrow
>>> c2b_ray.load_run("runs/demo/run").report
>>> c2b_ray.log("runs/new", "mlflow:http://tracking:5000|classifiers")             # or wandb:ENTITY/PROJECT
>>> c2b_ray.compare("runs/old", "runs/new").cells
>>> c2b_ray.search_prompts("prompts.yaml").associations                        # words that raise a value
>>> c2b_ray.latent_directions("latent.yaml").directions                        # of a generator, that change answers
>>> c2b_ray.evaluate("evaluate.yaml").agreement                                # detected biases against ground truth
>>> c2b_ray.build_dataset("dataset.yaml", "failures").rows
>>> c2b_ray.load_dataset("failures").count_rows()
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from c2b_ray.audits.c2b.audit import audit
    from c2b_ray.audits.c2b.comparison import Comparison
    from c2b_ray.audits.clip_bias.audit import clip_bias
    from c2b_ray.audits.dataset.build import build_dataset
    from c2b_ray.audits.dataset.export import load_dataset
    from c2b_ray.audits.evaluate.evaluate import evaluate
    from c2b_ray.audits.failures.audit import find_failures
    from c2b_ray.audits.latent.audit import latent_directions
    from c2b_ray.audits.prompts.audit import search_prompts
    from c2b_ray.audits.runs import compare
    from c2b_ray.audits.tracking import log
    from c2b_ray.config import AuditConfig
    from c2b_ray.models.memory_classifier import InMemory, Preprocess
    from c2b_ray.storage.run import Run, load_run

    __version__: str

# Before pyarrow is loaded, in workers too: the allocator that it brings keeps what each of its threads let go, some
# 40 MiB in a build of 300,000 draws; the system's gives it back.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
# Before NumPy is loaded: OpenBLAS starts a thread for each core, and SciPy's another; each would wait for work at full
# speed for a tenth of a second, which is 3 CPU-s on 16 cores. After 2**20 ticks of the clock, half a millisecond, they
# sleep; products of matrices that follow each other take as long as before.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

__all__ = [
    "AuditConfig",
    "Comparison",
    "InMemory",
    "Preprocess",
    "Run",
    "__version__",
    "audit",
    "build_dataset",
    "clip_bias",
    "compare",
    "evaluate",
    "find_failures",
    "latent_directions",
    "load_dataset",
    "load_run",
    "log",
    "search_prompts",
]

_MODULES = {
    "audit": "c2b_ray.audits.c2b.audit",
    "Comparison": "c2b_ray.audits.c2b.comparison",
    "build_dataset": "c2b_ray.audits.dataset.build",
    "evaluate": "c2b_ray.audits.evaluate.evaluate",
    "clip_bias": "c2b_ray.audits.clip_bias.audit",
    "compare": "c2b_ray.audits.runs",
    "find_failures": "c2b_ray.audits.failures.audit",
    "latent_directions": "c2b_ray.audits.latent.audit",
    "load_dataset": "c2b_ray.audits.dataset.export",
    "AuditConfig": "c2b_ray.config",
    "InMemory": "c2b_ray.models.memory_classifier",
    "Preprocess": "c2b_ray.models.memory_classifier",
    "Run": "c2b_ray.storage.run",
    "load_run": "c2b_ray.storage.run",
    "log": "c2b_ray.audits.tracking",
    "search_prompts": "c2b_ray.audits.prompts.audit",
}


def __getattr__(name: str) -> Any:
    """Names load when asked for: `import c2b_ray.stats` alone brings neither Ray nor torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("c2b-ray")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc
    from importlib import import_module

    # A module makes many objects and no garbage. To look at all of them again and again took an eighth of the time.
    collected = gc.isenabled()
    gc.disable()
    try:
        return getattr(import_module(_MODULES[name]), name)
    finally:
        if collected:
            gc.enable()


def __dir__() -> list[str]:
    """Returns the names of `__all__` too, also before they load: so that completion shows them."""
    return sorted({*globals(), *__all__})
