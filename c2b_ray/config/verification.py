"""The section `verification` of an audit file: who looks whether images show what their captions say."""

from __future__ import annotations

from pydantic import Field

from c2b_ray.config.strict import SpecText, Strict


class Verification(Strict):
    """Whether images show what their captions say: who looks, and how it is known how well."""

    model: SpecText = Field(description="The spec of a captioner; `open_clip:` and `world:clip` serve as light ones.")
    calibration: str | None = Field(
        None,
        description="A table of labelled images, as of source: labelled, on which the captioner is measured; a hundred "
        "images of each value are plenty. Without it, its own certainty is taken for its accuracy, and the report says "
        "so.",
    )
