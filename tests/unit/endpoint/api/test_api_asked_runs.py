"""The results of a search for failures that was asked a question: it adds rows to tables that may have been read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from failures_recipes import showcase
from synthetic_failures import make_run

from c2b_ray.audits.failures.run import open_failures_run


def _rows(client: Any, path: str) -> list[Any]:
    rows, cursor = [], None
    while cursor is not None or not rows:
        page = client.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        rows, cursor = rows + page["items"], page["next"]
        assert page["items"], "a page that another page announced has rows"
    assert page["rows"] == len(rows)
    return rows


def test_rows_of_a_question_are_on_the_pages_of_a_table(endpoint: Any) -> None:
    job = endpoint.finish("failures")
    run = make_run(endpoint.run_path(job.id), showcase())
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}/tables/hypotheses"
    before = _rows(client, path)
    with open_failures_run(run.path, run.manifest["run_id"], run.config) as asked:
        asked.write("hypotheses", pa.concat_tables([asked.hypotheses, asked.hypotheses.slice(0, 2)]))
        assert len(_rows(client, path)) == len(before) + 2
        asked.write("hypotheses", pa.concat_tables([asked.hypotheses, asked.hypotheses.slice(0, 1)]))
        asked.update({"status": "finished"})
    assert _rows(client, path) == [*before, *before[:2], before[0]]
