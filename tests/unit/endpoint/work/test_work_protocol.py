"""What a job's process may say: a stranger's model runs in it."""

import json

import pytest

from c2b_ray.endpoint.work.protocol import (
    LeaseExtended,
    MayCommit,
    ProtocolError,
    StepReport,
    WorkEnded,
    from_child,
    line,
    shortened,
    to_child,
)


@pytest.mark.parametrize("message", [StepReport(step="classify", kind="progress", done=3, total=None),
                                     MayCommit(number=1),
                                     WorkEnded(how="yielded", images=5)])  # fmt: skip
def test_messages_arrive_as_they_were_sent(message):
    assert from_child(line(message)) == message


def test_orders_arrive_as_they_were_sent():
    assert to_child(line(LeaseExtended(until=12.5))) == LeaseExtended(until=12.5)


GOOD = {"type": "told", "step": "s", "kind": "progress"}


@pytest.mark.parametrize(
    "said",
    [
        b"not json\n",
        b"[]\n",
        b'{"type": "start", "kind": "c2b"}\n',
        json.dumps({**GOOD, "done": -1}).encode(),
        json.dumps({**GOOD, "done": 2**70}).encode(),
        json.dumps({**GOOD, "rate": float("nan")}).encode(),
        json.dumps({**GOOD, "rate": 1e300}).encode(),
        json.dumps({**GOOD, "images": True}).encode(),
        json.dumps({**GOOD, "more": 1}).encode(),
        json.dumps({**GOOD, "step": "x" * 5000}).encode(),
        b'{"type": "ended", "how": "won"}',
        b'{"type": "told", "step": "s", "kind": "prog',
    ],
)
def test_what_is_no_message_is_refused(said):
    with pytest.raises(ProtocolError):
        from_child(said)


def test_the_longest_text_fits():
    assert from_child(line(StepReport(step=shortened("ä" * 10_000), kind="begin"))).step.endswith(" …")
