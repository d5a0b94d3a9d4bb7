"""The rows of `c2b failures` and `c2b dataset` as Python has them are those of their Arrow schemas."""

from typing import get_type_hints

import pyarrow as pa
import pytest

from c2b_ray.audits.dataset.steps.evaluation import CheckedRow
from c2b_ray.audits.failures.discovery.compared import ComparedRow
from c2b_ray.audits.failures.discovery.rounds import ORDERS, OrderRow
from c2b_ray.tables import dataset, failures
from c2b_ray.tables import dataset as dataset_rows
from c2b_ray.tables import dataset as evaluation
from c2b_ray.tables import failures as rows

CLUSTER = failures.COMBINATIONS.field("clusters").type.value_type
PAIRS = [
    (rows.ExampleRow, pa.schema(failures.EXAMPLE)), (rows.RoundRow, failures.ROUNDS),
    (rows.AnswerRow, failures.ANSWERS), (rows.ClusterRow, pa.schema(CLUSTER)),
    (rows.CombinationRow, failures.COMBINATIONS), (rows.HypothesisRow, failures.HYPOTHESES),
    (rows.ReliabilityRow, failures.RELIABILITY), (rows.TransferRow, failures.TRANSFERS), (OrderRow, ORDERS),
    (dataset_rows.DatasetRow, dataset.DATASET_ROWS), (dataset_rows.AnswerOfRow, pa.schema(dataset.ANSWER)),
    (dataset_rows.PlannedRow, dataset.PLANNED), (CheckedRow, evaluation.CHECKED),
    (ComparedRow, failures.FAILURES_COMPARISON),
]  # fmt: skip


@pytest.mark.parametrize(("row", "schema"), PAIRS, ids=[row.__name__ for row, _ in PAIRS])
def test_a_row_has_the_columns_of_its_table(row: type, schema: pa.Schema) -> None:
    assert sorted(get_type_hints(row)) == sorted(schema.names)
