"""The messages between a runner and a job's process: one JSON object a line, over the process's pipes.

The process may have loaded files that a stranger uploaded, so the runner trusts its lines no further than these models
check them. This module knows neither the ledger nor what a job does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from c2b_ray.engine.progress import Part
from c2b_ray.errors import C2BError

LONGEST_LINE = 2**20
"""The most bytes of a line from the process; a longer line ends it."""
_LONGEST_TEXT = 4000
Ending = Literal["finished", "cancelled", "yielded", "fenced", "failed"]


class ProtocolError(C2BError):
    """A line that is not a message."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=0, lt=2**53)]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]


class Start(_Message):
    """To the process, once: its job.

    `until`: how long it may work before it hears `LeaseExtended`, by `steady_now`. `strange`: it loads files that a
    stranger uploaded, and may reach only the store of its run.
    """

    type: Literal["start"] = "start"
    kind: str
    config: dict[str, Any]
    out: str
    via: str
    placement: str | None = None
    strange: bool = False
    until: float


class StopOrder(_Message):
    """To the process: end at the next batch."""

    type: Literal["order"] = "order"
    what: Literal["cancel", "yield"]


class LeaseExtended(_Message):
    """To the process: its runner holds the job until this time, by `steady_now`, a clock that both share."""

    type: Literal["held"] = "held"
    until: float


class Permission(_Message):
    """To the process: the answer to its request `number` to commit."""

    type: Literal["permission"] = "permission"
    number: int
    granted: bool


class StepReport(_Message):
    """From the process: a step began, progressed or ended, or there is a warning (`kind`).

    `images`: images that models have answered about in this process so far. `present`: images whose answers the run
    holds, at least, from this or earlier processes. `counts`: results of a step that ended, by name. `busy`: how busy
    the parts of the step are (`engine.progress`).
    """

    type: Literal["told"] = "told"
    step: Text
    kind: Literal["begin", "progress", "end", "warning"]
    done: Count | None = None
    total: Count | None = None
    rate: Seconds | None = None
    images: Count = 0
    present: Count = 0
    counts: Annotated[dict[Text, Count], Field(max_length=100)] = {}
    busy: dict[Part, Share] = {}


class MayCommit(_Message):
    """From the process, which waits for the answer: may it commit a file?"""

    type: Literal["may_commit"] = "may_commit"
    number: Count


class Problem(_Message):
    """Why a job failed, in words for its owner. `again`: whether a retry may succeed. `busy`: whether another process
    writes its run, or the run that it asks."""

    title: Text
    detail: Text = ""
    field: Text | None = None
    location: Text | None = None
    again: bool = False
    busy: bool = False


class WorkEnded(_Message):
    """From the process: its last message."""

    type: Literal["ended"] = "ended"
    how: Ending
    images: Count = 0
    present: Count = 0
    problem: Problem | None = None
    classifier_hash: Annotated[str, Field(max_length=200)] | None = None
    each_classifier: tuple[Annotated[str, Field(max_length=200)], ...] = ()


ToChild = Annotated[Start | StopOrder | LeaseExtended | Permission, Field(discriminator="type")]
FromChild = Annotated[StepReport | MayCommit | WorkEnded, Field(discriminator="type")]
_TO: TypeAdapter[Start | StopOrder | LeaseExtended | Permission] = TypeAdapter(ToChild)
_FROM: TypeAdapter[StepReport | MayCommit | WorkEnded] = TypeAdapter(FromChild)


def line(message: BaseModel) -> bytes:
    return message.model_dump_json().encode() + b"\n"


def to_child(data: bytes) -> Start | StopOrder | LeaseExtended | Permission:
    return _TO.validate_json(data)


def from_child(data: bytes) -> StepReport | MayCommit | WorkEnded:
    """Parses a line of the process. Raises ProtocolError if it is not a message."""
    try:
        return _FROM.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(f"the job's process sent an invalid message: {error.errors()[0]['msg']}") from error


def shortened(text: str) -> str:
    """Returns the text, cut to the length that a message may have."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 2]} …"
