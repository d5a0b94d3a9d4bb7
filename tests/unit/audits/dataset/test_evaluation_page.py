"""The page of an evaluated dataset of failures: each classifier has lines of its own."""

from __future__ import annotations

from typing import Any

from c2b_ray.audits.dataset.evaluation_page import evaluation_page


def rate(of: str, classifier: str, share: float) -> dict[str, Any]:
    return {"of": of, "classifier": classifier, "rule": "top1", "rate": share, "rate_low": 0.1, "rate_high": 0.6,
            "images": 40, "unanswered": 0}  # fmt: skip


def test_failures_of_classifiers_whose_files_have_one_name_keep_a_line_each() -> None:
    """Neither answers here, both made the dataset, and their paths are shortened to their last part."""
    rates = [rate("dataset", "net", 0.5), rate("failures of onnx:/old/a.onnx", "net", 0.123),
             rate("failures of onnx:/new/a.onnx", "net", 0.321)]  # fmt: skip
    html = evaluation_page(
        {
            "dataset": "failures", "classifiers": [{"name": "net", "family": "net", "spec": "timm:net"}],
            "images": 40, "captions": 4, "rates": rates, "consistency": [], "similarity": None, "built": [],
            "right_now": {}, "rule": "top1",
        },
        [],
    )  # fmt: skip
    assert html.count(">onnx:a.onnx #") == 2
    assert html.count("12\u202f%") == html.count("32\u202f%") == 1
