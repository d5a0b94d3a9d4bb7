"""The fields of a question to a finished run on the shared endpoint, named like the options of `c2b ask`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from c2b_ray.config.named import Name, RunPath
from c2b_ray.config.strict import StrictModel

IMAGES, DRAWS = 50, 20_000
"""How many images an audit, and draws a failures run, takes for a question that does not say."""
LABELLED = (
    "it is an audit of labelled images, which holds none for a sentence of yours; ask one whose images come from an "
    "index or a generator"
)


class QuestionConfig(StrictModel):
    """A question to a finished run: how well does the classifier do on images of a sentence? A field that the kind of
    run does not use is refused."""

    run: RunPath = Field(description="The finished audit or failures run.")
    sentence: Name = Field(description="A description of images, such as 'a bus in the snow at night'.")
    n: int | None = Field(
        None, ge=1, le=100_000, description="The number of images. Default: 50 for an audit, 20,000 for a failures run."
    )
    classifier: Name | None = Field(None, description="One classifier of an audit. Default: all of them.")
    target_class: Name | None = Field(
        None, description="The audit's class that the sentence is about. Default: the class that the sentence names."
    )
    target: Name | None = Field(None, description="A wrong label of a failures run to test for, besides any failure.")


def draws_images(config: Mapping[str, Any]) -> bool:
    """Returns whether a run of this config found or made its images, and so can do it for the sentence of a question.
    A run on labelled images has no others."""
    images = config.get("images") or {}
    return any(images.get(source) is not None for source in ("index", "generator", "generate"))
