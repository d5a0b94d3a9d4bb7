"""The directions of a run of `c2b latent` in the formats that other programs read: CSV, JSON, Parquet.

In CSV a direction is a JSON list in one cell. Knows the columns of `tables.latent.DIRECTIONS`.
"""

from __future__ import annotations

import json as json_module

import pyarrow as pa

from c2b_ray.report.export import about, csv_of, exported, json_of, of_classifier, parquet_of
from c2b_ray.storage.run import Run


def csv(run: Run, classifier: str | None = None) -> bytes:
    table = exported(_directions(run, classifier))
    vectors = [None if row is None else json_module.dumps(row) for row in table["direction"].to_pylist()]
    column = table.schema.get_field_index("direction")
    return csv_of(table.set_column(column, "direction", pa.array(vectors, pa.string())))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_directions(run, classifier)))


def json(run: Run, classifier: str | None = None) -> bytes:
    """One object: the run's id, its settings and models, and a row per direction, problem and hyperplane."""
    return json_of(
        {
            **about(run),
            "directions": exported(_directions(run, classifier)).to_pylist(),
            "problems": exported(run.read("problems")).to_pylist(),
            "hyperplanes": exported(run.read("hyperplanes")).to_pylist(),
        }
    )


def _directions(run: Run, classifier: str | None) -> pa.Table:
    return of_classifier(run.read("directions"), classifier, run.read("problems")["classifier"].to_pylist())
