"""The fields of a question to a finished run on the shared endpoint, named like the options of `c2b ask`."""

from __future__ import annotations

from pydantic import Field

from c2b_ray.config.strict import Name, Strict


class QuestionConfig(Strict):
    """How does the classifier do on images of a sentence? Fields that a kind of run does not use are refused."""

    run: str = Field(description="The finished audit or run of failures that is asked.")
    sentence: Name = Field(description="Such as 'a bus in the snow at night'.")
    n: int | None = Field(
        None, ge=1, le=100_000, description="How many images; by default 50 of an audit, 20,000 draws of failures."
    )
    classifier: Name | None = Field(None, description="One classifier of an audit; by default all.")
    target_class: Name | None = Field(None, description="The class of an audit; by default the one it names.")
    target: Name | None = Field(None, description="A wrong label of a run of failures to look for, besides any.")
