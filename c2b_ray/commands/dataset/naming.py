"""Names models and files in a dataset's rows: as in its config, without their folders.

So the same files give the same rows in every folder and on every machine, and rows hold no credentials of a URL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from c2b_ray.report.kit.redact import clean_setting


def names_in_rows(specs: Sequence[str]) -> list[str]:
    """Returns a name for each spec, path or user-chosen name, all different: `onnx:/models/a/net.onnx` is
    `onnx:net.onnx`.

    Where several would have the same name, the second is `onnx:net.onnx #2`.
    """
    met: Counter[str] = Counter()
    names = []
    for spec in specs:
        short = clean_setting(spec)
        met[short] += 1
        names.append(short if met[short] == 1 else f"{short} #{met[short]}")
    return names


def name_in_rows(spec: str) -> str:
    return names_in_rows([spec])[0]
