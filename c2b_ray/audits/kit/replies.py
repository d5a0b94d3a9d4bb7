"""A language model whose replies to many requests a run keeps as they come, and whose progress it reports.

Without it thousands of captions would be one call: no progress, no end before the last of them, and none left of a
process that was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pyarrow as pa

from c2b_ray.engine.progress import Progress, ProgressCounter
from c2b_ray.roles import ChatReply, ChatRequest, LanguageModel, TokenLogProb
from c2b_ray.storage.parts import Parts, opened, writing
from c2b_ray.tables import content_id

FEW = 16
"""Requests of a call that is not worth a file."""
FIRST, LEAST = 64, 16
"""Requests of the first call of the model, and the fewest of a later one."""
QUICK_S, SLOW_S = 5.0, 20.0
"""A call that took less or more decides that the next one has twice or half as many requests."""
REPLIES = pa.schema(
    [
        pa.field("reply_id", pa.string(), nullable=False),  # hash of the model's revision and the request
        pa.field("text", pa.string(), nullable=False),
        pa.field("error", pa.string()),
    ]
)


class KeptReplies:
    """Passes calls on to `model`, and keeps the replies of `chat` in Parquet parts under `out`.

    A request that was answered is not sent again, unless it belongs to a call of few. `listener` is told how many
    requests of a call are answered; what it raises ends the call, whose replies so far are kept.
    """

    def __init__(self, model: LanguageModel, out: str, listener: Callable[[Progress], None]) -> None:
        self._model, self._out, self._listener = model, out, listener

    @property
    def revision(self) -> str:
        return self._model.revision

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        if len(requests) <= FEW:
            return self._model.chat(requests)
        revision = self.revision  # once: behind Serve it is a call
        ids = [content_id("reply", revision, asdict(request)) for request in requests]
        rows = [row for table in opened(self._out).each(REPLIES.names) for row in table.to_pylist()]
        stored = {row["reply_id"]: ChatReply(row["text"], row["error"]) for row in rows}
        missing = {reply_id: request for reply_id, request in zip(ids, requests, strict=True) if reply_id not in stored}
        if missing:
            with writing(self._out) as parts:
                stored |= self._answered(missing, parts, len(set(ids)) - len(missing))
        return [stored[reply_id] for reply_id in ids]

    def _answered(self, missing: dict[str, ChatRequest], parts: Parts, resumed: int) -> dict[str, ChatReply]:
        result: dict[str, ChatReply] = {}
        teller, names, size = ProgressCounter(self._listener, resumed, resumed + len(missing)), list(missing), FIRST
        while len(result) < len(names):
            began, batch = time.monotonic(), names[len(result) : len(result) + size]
            replies = dict(zip(batch, self._model.chat([missing[reply_id] for reply_id in batch]), strict=True))
            rows = [
                {"reply_id": reply_id, "text": reply.text, "error": reply.error} for reply_id, reply in replies.items()
            ]
            parts.write(pa.Table.from_pylist(rows, REPLIES), "reply_id")
            result |= replies
            teller.wrote(len(rows), sum(reply.error is not None for reply in replies.values()))
            took = time.monotonic() - began
            size = size * 2 if took < QUICK_S else max(LEAST, size // 2) if took > SLOW_S else size
        return result

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        return self._model.next_tokens(texts, k)

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        return self._model.log_likelihood(texts)
