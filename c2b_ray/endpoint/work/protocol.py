"""What a runner and the process of a job say to each other: one JSON object a line, over the process's own pipes.

The process has loaded what a stranger uploaded, so that the runner believes no line of it further than these models
check. It knows neither the ledger nor what a job does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from c2b_ray.errors import C2BError

LONGEST_LINE = 2**20
"""Bytes of a line from the process; what is longer ends it."""
_LONGEST_TEXT = 4000
Ending = Literal["finished", "cancelled", "yielded", "fenced", "failed"]


class ProtocolError(C2BError):
    """A line that is no message."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=0, lt=2**53)]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]


class Start(_Message):
    """To the process, once: the job. `until`: when it may work no longer without hearing `Held`. `strange`: it loads
    what a stranger uploaded, and reaches nothing but the store of its run."""

    type: Literal["start"] = "start"
    kind: str
    config: dict[str, Any]
    out: str
    via: str
    placement: str | None = None
    strange: bool = False
    until: float


class Order(_Message):
    """To the process: end at the next batch."""

    type: Literal["order"] = "order"
    what: Literal["cancel", "yield"]


class Held(_Message):
    """To the process: its runner holds the job `until` then, by the clock of `stopping.now`, which both share."""

    type: Literal["held"] = "held"
    until: float


class Permission(_Message):
    """To the process: the answer to its request `number` to commit."""

    type: Literal["permission"] = "permission"
    number: int
    granted: bool


class StepReport(_Message):
    """From the process: a step began, moved or ended, or something is worth a warning (`kind`).

    `images`: that models have answered about in this process, so far. `present`: of which the run holds answers, at
    least, whichever process asked. `counts`: what a step that ended came upon, by name.
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


class MayCommit(_Message):
    """From the process, which waits: whether it may commit a file."""

    type: Literal["may_commit"] = "may_commit"
    number: Count


class Problem(_Message):
    """Why a job failed, as its owner reads it. `again`: whether it may go better another time."""

    title: Text
    detail: Text = ""
    field: Text | None = None
    location: Text | None = None
    again: bool = False


class Ended(_Message):
    """From the process, last of all."""

    type: Literal["ended"] = "ended"
    how: Ending
    images: Count = 0
    present: Count = 0
    problem: Problem | None = None
    classifier_hash: Annotated[str, Field(max_length=200)] | None = None


ToChild = Annotated[Start | Order | Held | Permission, Field(discriminator="type")]
FromChild = Annotated[StepReport | MayCommit | Ended, Field(discriminator="type")]
_TO: TypeAdapter[Start | Order | Held | Permission] = TypeAdapter(ToChild)
_FROM: TypeAdapter[StepReport | MayCommit | Ended] = TypeAdapter(FromChild)


def line(message: BaseModel) -> bytes:
    return message.model_dump_json().encode() + b"\n"


def to_child(data: bytes) -> Start | Order | Held | Permission:
    return _TO.validate_json(data)


def from_child(data: bytes) -> StepReport | MayCommit | Ended:
    """ProtocolError where the line is no message of a job's process."""
    try:
        return _FROM.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(f"the job's process said what is no message: {error.errors()[0]['msg']}") from error


def shortened(text: str) -> str:
    """As much of it as a message takes."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 2]} …"
