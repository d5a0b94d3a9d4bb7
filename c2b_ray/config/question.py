"""The fields of a question to a finished run on the shared endpoint, named like the options of `c2b ask`."""

from __future__ import annotations

from pydantic import Field

from c2b_ray.config.named import Name, RunPath
from c2b_ray.config.strict import Strict


class QuestionConfig(Strict):
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
