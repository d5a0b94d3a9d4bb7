"""A ledger that can be read and not written, as on a full disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from endpoint_app import CONFIG
from sqlalchemy import event

from c2b_ray.endpoint.ledger.database import DatabaseDownError


@pytest.fixture
def writable(endpoint: Any) -> Iterator[Callable[[bool], None]]:
    """A function that makes the ledger read-only, and writable again."""
    state = {"query_only": 0}

    @event.listens_for(endpoint.db.engine, "checkout")
    def _set(connection: Any, record: Any, proxy: Any) -> None:
        connection.execute(f"PRAGMA query_only = {state['query_only']}")

    yield lambda on: state.update(query_only=int(not on))
    state["query_only"] = 0


def test_reading_goes_on_while_the_ledger_cannot_be_written(
    endpoint: Any, writable: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, client = endpoint.submit(), endpoint.as_("a")
    monkeypatch.setattr(endpoint.context.throttle, "_handfuls", {})
    writable(False)
    assert client.get(f"/v1/audits/{job['id']}").json()["state"] == "queued"
    assert client.get("/readyz").status_code == 200
    for answer in (
        client.post("/v1/audits", json={"kind": "c2b", "config": CONFIG}),
        client.delete(f"/v1/audits/{job['id']}"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "database_down")
        assert answer.json()["detail"] == "the ledger cannot be written; try again"
        assert int(answer.headers["retry-after"]) > 0
    writable(True)
    assert client.delete(f"/v1/audits/{job['id']}").json()["state"] == "cancelled"


def test_a_ledger_that_does_not_answer_is_not_read(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*arguments: Any) -> None:
        raise DatabaseDownError("gone", 3.0)

    monkeypatch.setattr(endpoint.context.throttle, "_handfuls", {})
    monkeypatch.setattr("c2b_ray.endpoint.ledger.quotas.take", down)
    answer = endpoint.as_("a").get("/v1/audits")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the ledger does not answer; try again")
