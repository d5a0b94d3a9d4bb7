"""The section `verification` of an audit file: the model that checks whether images show what their captions say."""

from __future__ import annotations

from pydantic import Field

from c2b_ray.config.named import CaptionerSpec, TablePath
from c2b_ray.config.strict import StrictModel


class Verification(StrictModel):
    """The model that checks whether images show what their captions say, and how its accuracy is measured."""

    model: CaptionerSpec = Field(description="The spec of a captioner; `open_clip:` and `world:clip` are small ones.")
    calibration: TablePath | None = Field(
        None,
        description="A table of labelled images, as for source: labelled, on which the captioner's accuracy is "
        "measured; a hundred images of each value suffice. Without it the captioner's own certainty is used as its "
        "accuracy, and the report says so.",
    )
