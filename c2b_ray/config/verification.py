"""The section `verification` of an audit file: the model that checks whether images show what their captions say."""

from __future__ import annotations

from pydantic import Field

from c2b_ray.config.strict import SpecText, Strict


class Verification(Strict):
    """The check that images show what their captions say: the model, and how its accuracy is measured."""

    model: SpecText = Field(description="The spec of a captioner; `open_clip:` and `world:clip` serve as light ones.")
    calibration: str | None = Field(
        None,
        description="A table of labelled images, as of source: labelled, on which the captioner is measured; a hundred "
        "images of each value are plenty. Without it, its own certainty is taken for its accuracy, and the report says "
        "so.",
    )
