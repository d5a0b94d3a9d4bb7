"""Prints the modules of the package between `audit()` and a model's batch, in a labelled audit in one process.

    python bench/call_path.py

Sixty scenes of two classes of the world are written to a temporary folder and audited. The stack of the first call of
the model is printed, with the stacks that started its thread and handed it its work; then how many modules these pass.
"""

from __future__ import annotations

import tempfile
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image

from c2b_ray import audit
from c2b_ray.models.torch_runtime import TorchClassifier
from c2b_ray.world import render, sample

PACKAGE = "/c2b_ray/"
CLASSES = ("bus", "bird")


def stack() -> list[str]:
    """Returns the calls of the package that stand on this thread's stack, outermost first, each as file:function."""
    frames = traceback.extract_stack()
    return [f"{one.filename.rpartition(PACKAGE)[2]}:{one.name}" for one in frames if PACKAGE in one.filename]


def main() -> None:
    origin: dict[int, list[str]] = {}  # of the work of a thread
    path: list[str] = []
    submit, logits = ThreadPoolExecutor.submit, TorchClassifier.logits_of_shaped

    def traced(self: ThreadPoolExecutor, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        before = stack()

        def work(*args: Any, **kwargs: Any) -> Any:
            origin[threading.get_ident()] = before
            return call(*args, **kwargs)

        return submit(self, work, *args, **kwargs)

    def called(self: TorchClassifier, *args: Any) -> Any:
        if not path:
            path.extend([*origin.get(threading.get_ident(), []), *stack()])
        return logits(self, *args)

    ThreadPoolExecutor.submit, TorchClassifier.logits_of_shaped = traced, called  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        for name in CLASSES:
            (Path(folder) / "photos" / name).mkdir(parents=True)
            for number, scene in enumerate(sample(30, 7, target_class=name)):
                Image.fromarray(render(scene)).save(Path(folder) / "photos" / name / f"{number}.png")
        images = {"source": "labelled", "table": f"{folder}/photos"}
        config = {"task": "t", "classes": CLASSES, "classifier": "world:resnet-control-0", "images": images}
        audit(config, f"{folder}/run", via="here")
    print("\n".join(path))
    print(f"{len({call.partition(':')[0] for call in path})} modules")


if __name__ == "__main__":
    main()
