"""An audit that brings only its findings is summarised, exported, gated and compared by what these say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats as scipy_stats

from c2b_ray.audits import audit, from_findings, runs
from c2b_ray.audits.audit import AUDITS, Audit, audit_named
from c2b_ray.audits.gate import GateCell, failed
from c2b_ray.config.named import StrictModel
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.report import words
from c2b_ray.stats import wilson_interval
from c2b_ray.storage.run import open_run


class SharesConfig(StrictModel):
    task: str = "shares"
    below: int = 50
    alpha: float = 0.05


SHARES = Audit(
    name="shares",
    question="Which share is it?",
    about="Count shares.",
    config="test_from_findings:SharesConfig",
    run="test_from_findings:findings",
    tables={
        "counts": pa.schema([("classifier", pa.string()), ("name", pa.string()), ("k", pa.int64()), ("n", pa.int64())])
    },
    findings="test_from_findings:findings",
    same=("below",),
)


def findings(run, classifier=None):
    result = []
    for row in run.read("counts").to_pylist():
        low, high = wilson_interval(row["k"], row["n"])
        share = row["k"] / row["n"] if row["n"] else np.nan
        values = {"value": share, "value_low": low, "value_high": high, "n": row["n"]}
        verdict = "found" if low > 0.5 else "undetermined"
        doubt = "the light is odd" if row["name"] == "odd" else None
        if classifier in (None, row["classifier"]):
            result.append(GateCell(row["classifier"], row["name"], {**values, "verdict": verdict, "doubt": doubt}))
    return result


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "AUDITS", {**AUDITS, "shares": "test_from_findings:SHARES"})

    def make(name, counts, **config):
        with open_run(tmp_path / name, name, config, SHARES) as run:
            rows = [dict(zip(("classifier", "name", "k", "n"), row, strict=True)) for row in counts]
            run.write("counts", pa.Table.from_pylist(rows, SHARES.tables["counts"]))
            run.update({"status": "finished"})
        return runs.load_run(tmp_path / name)

    return make


def test_problems_come_first_and_what_is_in_doubt_is_none(made):
    run = made("a", [("net", "small", 1, 40), ("net", "large", 38, 40), ("net", "odd", 40, 40), ("net", "empty", 0, 0)])
    shown = runs.summary(run)
    assert [row[0] for row in shown.rows] == ["large", "odd", "small", "empty"]
    assert list(shown.marks) == ["bad", "", "", ""]
    assert shown.headline == "large: 0.95. 1 finding among 4 results"
    assert run.record.headline.findings == {"net": 1}
    assert shown.to_json["findings"][3]["value"] is None
    page = Path(runs.write_report(run)).read_text()
    assert "Which share is it?" in page
    assert "the light is odd" in page


def test_nothing_found_is_a_page_too(made):
    run = made("a", [])
    assert runs.summary(run).headline == "0 findings among 0 results"
    assert "Nothing was measured" in Path(runs.write_report(run)).read_text()


def test_exports_hold_every_finding_or_those_of_one_classifier(made):
    run = made("a", [("net", "small", 1, 40), ("other", "small", 9, 40)])
    assert [one["value"] for one in json.loads(runs.export(run, "json"))["findings"]] == [0.025, 0.225]
    assert runs.export(run, "csv", "other").count(b"\n") == 2
    with pytest.raises(ConfigError, match="has no predictions of 'ohter'; did you mean 'other'"):
        runs.export(run, "csv", "ohter")
    assert pq.read_table(pa.BufferReader(runs.export(run, "parquet"))).schema.names == [
        one.name for one in from_findings.FINDINGS
    ]


def test_gates_look_at_the_findings(made):
    run = made("a", [("net", "small", 1, 40), ("net", "large", 38, 40), ("net", "odd", 40, 40)])
    checks = runs.check(run, ["value>0.5"])
    assert [one.outcome for one in checks] == ["passed", "failed", "skipped"]
    assert failed(runs.check(run, ["large:found"]))
    with pytest.raises(ConfigError, match="no measure 'phi'"):
        runs.check(run, ["phi>0"])


def test_two_runs_are_compared_by_their_intervals(made):
    """MOVER of two Wilson intervals is Newcombe's (1998) interval of a difference. By hand, of 20/40 and 38/40: l, u =
    .352, .648 and .835, .986; .45 - sqrt((.95-.835)^2+(.648-.5)^2), .45 + sqrt((.986-.95)^2+(.5-.352)^2) = .263,
    .602."""
    a = made("a", [("net", "x", 20, 40), ("net", "y", 20, 40), ("net", "odd", 1, 40), ("net", "only a", 1, 40)])
    b = made("b", [("net", "x", 38, 40), ("net", "y", 21, 40), ("net", "odd", 40, 40), ("net", "empty", 0, 0)])
    compared = runs.compare(a, b)
    rows = {row["finding"]: row for row in compared.cells.to_pylist()}
    assert [rows["x"][name] for name in ("difference", "difference_low", "difference_high")] == pytest.approx(
        [0.45, 0.263, 0.602], abs=1e-3
    )
    reach = 0.45 - rows["x"]["difference_low"]
    p_value = 2 * scipy_stats.norm.sf(0.45 / reach * scipy_stats.norm.ppf(0.975))
    assert rows["x"]["p_value"] == pytest.approx(p_value)
    assert rows["x"]["q_value"] == pytest.approx(2 * p_value)  # of two that can be compared
    assert {name: row["change"] for name, row in rows.items()} == {
        "x": "worse", "y": "undetermined", "odd": "undetermined",
    }  # fmt: skip
    assert rows["odd"]["p_value"] is None
    assert failed(compared.check(["x:worse"]))
    assert not failed(compared.check(["y:worse"]))
    assert {row["change"] for row in runs.compare(b, a).cells.to_pylist()} == {"better", "undetermined"}


def test_differences_are_shown_in_the_unit_of_the_values():
    """Of values such as a rate of 1 in 10,000, two decimals would show +0.00 for every difference."""
    of_a = GateCell("net", "x", {"value": 0.0001, "value_low": 0.00005, "value_high": 0.00015, "n": 9})
    of_b = GateCell("net", "x", {"value": 0.0012, "value_low": 0.0011, "value_high": 0.0013, "n": 9})
    row = {**from_findings._row("x", of_a, of_b, 0.05), "q_value": 0.01}
    shown = from_findings._compared_texts(row)
    assert shown[1:4] == ("0.0001", "0.0012", "+0.0011")
    assert shown[4] == "+0.0009882 to +0.001212"  # 0.0011 ∓ the root of 0.0001² + 0.00005² (MOVER)
    fewer = from_findings._compared_texts({**from_findings._row("x", of_b, of_a, 0.05), "q_value": 0.01})
    assert fewer[3] == "−0.0011"


def test_an_interval_without_a_limit_is_unknown():
    for low in (None, np.nan):
        one = GateCell("net", "x", {"value": 0.5, "value_low": low, "value_high": 0.9, "n": 9})
        assert from_findings._texts(one)[4] == words.UNKNOWN


def test_two_classifiers_of_one_run_are_compared(made):
    run = made("a", [("old", "x", 20, 40), ("new", "x", 38, 40)])
    assert runs.compare(run, classifier_a="old", classifier_b="new").cells["change"].to_pylist() == ["worse"]


def test_runs_that_mean_different_things_or_share_nothing_are_refused(made):
    a, b = made("a", [("net", "x", 20, 40)], below=60), made("b", [("net", "x", 38, 40)], below=10)
    with pytest.raises(RunError, match="differ in below"):
        runs.compare(a, b)
    with pytest.raises(RunError, match="no finding in common"):
        runs.compare(a, made("c", [("net", "z", 38, 40)], below=60))


def test_intervals_of_other_levels_are_not_compared(made):
    a, same, other = (
        made(name, [("net", "x", 20, 40)], **c)
        for name, c in (("a", {}), ("b", {"alpha": 0.05}), ("c", {"alpha": 0.2}))
    )
    assert runs.compare(a, same).alpha == 0.05
    with pytest.raises(RunError, match=r"differ in alpha, so their intervals are of different levels"):
        runs.compare(a, other)


def test_equal_shares_are_hardly_ever_called_changed(made):
    """2,000 comparisons of two binomial samples of one share: p of at most .05 in .05 of them, within the error of
    counting at .005."""
    random, below = np.random.default_rng(100_001), 0
    for k_a, k_b in random.binomial(60, 0.3, (2000, 2)):
        pair = [GateCell("net", "x", {"value": k / 60, **_limits(k)}) for k in (int(k_a), int(k_b))]
        below += from_findings._row("x", *pair, 0.05)["p_value"] <= 0.05
    assert below / 2000 == pytest.approx(0.05, abs=0.015)


def _limits(k):
    low, high = wilson_interval(k, 60)
    return {"value_low": low, "value_high": high}


def test_an_audit_without_findings_has_neither_gates_nor_exports(tmp_path):
    bare = audit_named("dataset")
    assert (bare.export_names, bare.is_compared) == ([], False)
