"""`c2b clip-bias` from its config to its report, on the world's encoder and tables made here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import clip_bias_tables
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import c2b_ray
from c2b_ray.audits.audit import audit_named
from c2b_ray.audits.gate import failed
from c2b_ray.audits.runs import check, compare
from c2b_ray.cli.commands import app
from c2b_ray.endpoint.work.progress import ProgressReporter
from c2b_ray.errors import ConfigError, RunError, SourceError

REAL = Path(__file__).parents[3] / "shared" / "real" / "cue-conflict"
CONTRACT = ["model", "dataset", "metric", "attribute", "view", "group", "value", "value_low", "value_high", "n"]
TRANSFER = [
    "pretraining_metric", "pretraining_attribute", "pretraining_dataset", "downstream_metric", "downstream_attribute",
    "downstream_dataset", "view", "rho", "rho_low", "rho_high", "p_value", "q_value", "n_models",
]  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip-bias")
    return folder, clip_bias_tables.write_tables(folder)


@pytest.fixture(scope="module")
def run(tables):
    folder, config = tables
    return c2b_ray.clip_bias(config, folder / "run", via="here")


def rows(run, **what):
    return [row for row in run.biases.to_pylist() if all(row[name] == value for name, value in what.items())]


def test_tables_have_the_columns_of_the_contract_and_every_combination(run):
    assert run.biases.column_names[: len(CONTRACT)] == CONTRACT
    assert run.transfer.column_names[: len(TRANSFER)] == TRANSFER
    metrics = {row["metric"] for row in run.biases.to_pylist()}
    assert metrics == {"kl_recall@5", "max_skew@1000", "kl_vqa_accuracy", "kl_cider", "dba", "lic"}
    globally = [row for row in run.transfer.to_pylist() if row["view"] == "global"]
    assert len(globally) == (2 * 3) * (4 * 3)  # across attributes too
    assert all(math.isnan(row["rho"]) and row["n_models"] <= 2 for row in globally)  # of two models nothing is known
    assert run.convergence.num_rows == 2
    for row in run.biases.to_pylist():
        if not math.isnan(row["value"]):
            low, high = row["value_low"], row["value_high"]
            assert low - 1e-12 <= row["value"] <= high + 1e-12


def test_what_cannot_be_measured_says_why(run):
    for row in rows(run, attribute="one"):
        assert math.isnan(row["value"])
        assert row["note"] == "one has only 'x' as a value: a bias needs two"
    (skew,) = rows(run, metric="max_skew@1000", attribute="coin", group="all", model="a")
    assert skew["note"].startswith(f"by chance {skew['expected']:.3g}, in 95 % of shuffles below ")
    assert all(row["n"] == 144 for row in rows(run, attribute="coin", metric="kl_recall@5", group="all"))


def test_models_that_nobody_biased_are_not_called_biased(run):
    assert [row for row in run.biases.to_pylist() if row["q_value"] <= 0.05] == []


def test_the_order_of_a_table_s_rows_is_no_bias(tables, tmp_path):
    """Pictures that are all the same, and captions that differ beyond what CLIP reads, sorted by the coin."""
    folder, config = tables
    people = pq.read_table(folder / "people.parquet").to_pylist()
    alike = [
        {**row, "image": people[0]["image"], "caption": "a bus " + "very " * 100 + row["key"]}
        for row in people
        if row["coin"] is not None
    ]
    measured = []
    for name in ("key", "coin"):
        table = tmp_path / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist(sorted(alike, key=lambda row, by=name: row[by])), table)
        dataset = {**config["datasets"]["people"], "table": str(table), "attributes": ["coin"]}
        changes = {"models": {"a": "world:clip"}, "datasets": {"people": dataset}, "downstream": {}, "spaces": None}
        one = c2b_ray.clip_bias({**config, **changes, "recall_k": 40, "skew_share": 0.3}, tmp_path / name, via="here")
        measured.append(rows(one))
    assert measured[0] == measured[1]
    assert all(row["p_value"] > 0.01 for row in measured[1])


def test_a_rerun_embeds_nothing_and_changes_nothing(run, tables):
    folder, config = tables
    parts = sorted(path.name for path in (folder / "run/embeddings").iterdir())
    before = (folder / "run/clip_bias.parquet").read_bytes()
    c2b_ray.clip_bias(config, folder / "run", via="here")
    assert sorted(path.name for path in (folder / "run/embeddings").iterdir()) == parts
    assert (folder / "run/clip_bias.parquet").read_bytes() == before


def test_the_endpoint_books_images_and_no_texts(tables, tmp_path):
    """There are twice as many captions as images."""
    _, config = tables
    booked = ProgressReporter(lambda _: None, lambda: None)
    one = {**config, "models": {"a": config["models"]["a"]}, "downstream": {}, "spaces": None}
    c2b_ray.clip_bias(one, tmp_path / "run", via="here", listener=booked)
    assert (booked.images, booked.present) == (clip_bias_tables.IMAGES, clip_bias_tables.IMAGES)


def test_another_metric_and_other_groups_reuse_the_embeddings_of_an_earlier_run(run, tables, tmp_path):
    folder, config = tables
    assert "embed" in run.manifest["placement"]
    other = {**config, "recall_k": 2, "groups": {"k": 3, "least": 20}, "downstream": {}, "spaces": None}
    again = c2b_ray.clip_bias(other, tmp_path / "run", via="here", reuse=folder / "run")
    assert "placement" not in again.manifest  # no stage had a row to do
    assert {row["metric"] for row in again.biases.to_pylist()} == {"kl_recall@2", "max_skew@1000"}
    (skew,) = rows(again, metric="max_skew@1000", model="a", attribute="coin", group="all")
    (before,) = rows(run, metric="max_skew@1000", model="a", attribute="coin", group="all")
    assert skew == {**before, "q_value": skew["q_value"]}
    more = {**other, "datasets": {"people": {**config["datasets"]["people"], "texts": ["a new text"]}}}
    third = c2b_ray.clip_bias(more, tmp_path / "third", via="here", reuse=again)
    assert rows(third, metric="max_skew@1000")[0]["value"] >= 0


def test_gates_on_a_run_and_two_models_compared(run, tables, tmp_path):
    checks = check(run, ["people/max_skew@1000/*/all:value_low>5", "*/kl_*:q_value<0.05"])
    assert not failed(checks)
    assert {one.cell for one in checks} >= {"people/max_skew@1000/coin/all", "vqa/kl_vqa_accuracy/die/1"}
    assert failed(check(run, ["people/kl_recall@5/coin/all:value<1"], "a"))
    both = compare(run)
    (lic,) = (row for row in both.cells.to_pylist() if (row["metric"], row["attribute"]) == ("lic", "coin"))
    one, other = (rows(run, metric="lic", attribute="coin", model=name)[0] for name in "ab")
    # Of independent intervals (Zou & Donner 2008), for LIC has no samples.
    below = math.hypot(other["value"] - other["value_low"], one["value_high"] - one["value"])
    assert lic["difference_low"] == pytest.approx(other["value"] - one["value"] - below, abs=1e-12)
    assert not lic["paired"]
    assert both.names == ("a", "b")
    assert any(row["paired"] for row in both.cells.to_pylist())
    assert not failed(both.check(["worse"]))
    # The two tables of answers were drawn apart, their true answers too.
    assert any("questions have another true answer than in the table of a" in note for note in run.manifest["notes"])
    assert "Not told apart" in Path(both.write(tmp_path / "both")).read_text(encoding="utf-8")
    assert sum(both.to_json()["changes"].values()) == both.cells.num_rows
    # Another run of the same images: the same samples, so a model does not differ from itself by a digit.
    _, config = tables
    alone = {**config, "models": {"a": config["models"]["a"]}, "downstream": {}, "spaces": None}
    other = c2b_ray.clip_bias(alone, tmp_path / "run", via="here", reuse=run)
    again = [row for row in compare(run, other, "a").cells.to_pylist() if row["p_value"] is not None]
    assert {row["metric"] for row in again} == {"kl_recall@5", "max_skew@1000"}
    assert all(
        row["paired"] and row["difference"] == 0 and row["p_value"] == 1 for row in again if row["group"] == "all"
    )
    with pytest.raises(RunError, match="differ in skew_share"):
        compare(run, c2b_ray.clip_bias({**alone, "skew_share": 0.2}, tmp_path / "share", via="here", reuse=run), "a")
    people = {"people": {**config["datasets"]["people"], "texts": ["a thing"]}}
    with pytest.raises(RunError, match=r"differ in datasets.people.texts"):  # MaxSkew over other texts
        compare(run, c2b_ray.clip_bias({**alone, "datasets": people}, tmp_path / "texts", via="here", reuse=run), "a")


def test_report_summary_and_exports(run):
    page = Path(run.report).read_text(encoding="utf-8")
    for heading in ("Groups", "Local and global bias", "Gaps before and after", "Embedding spaces", "In numbers"):
        assert heading in page
    assert "<script>" in page
    assert page.count("<svg") > 5
    kind = audit_named("clip-bias")
    assert kind.summarise(run).to_json["biases"] == []
    document = json.loads(kind.export(run, "json", "a"))
    assert {row["model"] for row in document["biases"]} == {"a"}
    assert kind.export(run, "csv", None).count(b"\n") == run.biases.num_rows + 1
    with pytest.raises(ConfigError, match="no model 'c'"):
        kind.export(run, "csv", "c")


def test_the_command_prints_its_schema():
    result = CliRunner().invoke(app, ["clip-bias", "--print-schema"])
    assert result.exit_code == 0
    assert {"models", "datasets", "downstream", "spaces"} <= json.loads(result.output)["properties"].keys()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"datasets": {"people": {"attributes": ["gender"]}}}, ConfigError, "no column 'gender'"),
        ({"downstream": {"vqa": {"dataset": "cars", "vqa": {"a": "x"}}}}, ConfigError, "'cars' is none of `datasets`"),
        ({"downstream": {"vqa": {"dataset": "people", "vqa": {"c": "x"}}}}, ConfigError, "'c' is none of `models`"),
        ({"models": {"a": "world:clop"}}, ConfigError, "no encoder 'clop'"),
        ({"leakage": {"guesser": "gpt"}}, ConfigError, "leakage.guesser"),
        ({"groups": {"column": "place"}}, ConfigError, "groups.column: .* has no column 'place'"),
        ({"groups": {"k": 1000}}, ConfigError, "1000 clusters of the 160 images"),
        ({"datasets": {"people": {"table": "nowhere.parquet"}}}, SourceError, "no such table"),
    ],
)
def test_bad_config(tables, tmp_path, change, error, message):
    _, config = tables
    for field, value in change.items():
        base = config[field]
        nested = field == "datasets"
        config = {**config, field: {"people": {**base["people"], **value["people"]}} if nested else value}
    if "models" in change:
        config = {name: value for name, value in config.items() if name not in ("downstream", "spaces")}
    with pytest.raises(error, match=message):
        c2b_ray.clip_bias(config, tmp_path / "run", via="here")


def with_results(folder, config, kind, model, table):
    path = folder / f"changed-{model}.parquet"
    pq.write_table(table, path)
    blocks = {"vqa": ("vqa", "vqa"), "captions": ("captioning", "captions")}
    name, field = blocks[kind]
    block = config["downstream"][name]
    changed = {name: {**block, field: {**block[field], model: str(path)}}}
    quick = {"spaces": None, "groups": {"k": 1}, "leakage": {"seeds": 1, "folds": 2, "swaps": 8}}
    return {**config, **quick, "downstream": changed}


def test_models_with_different_images_are_compared_on_those_they_share(tables, tmp_path):
    folder, config = tables
    some = pq.read_table(folder / "vqa-b.parquet").slice(0, 200)
    run = c2b_ray.clip_bias(with_results(tmp_path, config, "vqa", "b", some), tmp_path / "run", via="here")
    assert {row["n"] for row in rows(run, metric="kl_vqa_accuracy", attribute="die")} == {100}
    assert any("120 of 320 questions are left out" in note for note in run.manifest["notes"])
    stranger = pa.table({"image": ["nobody"], "question": ["?"], "answer": ["a"], "prediction": ["a"]})
    with pytest.raises(ConfigError, match="has no image 'nobody'"):
        c2b_ray.clip_bias(with_results(tmp_path, config, "vqa", "b", stranger), tmp_path / "other", via="here")


def test_bias_amplification_says_which_value_has_no_open_question(tables, tmp_path):
    folder, config = tables
    coins = dict(zip(*(pq.read_table(folder / "people.parquet")[name].to_pylist() for name in ("key", "coin")),
                     strict=True))  # fmt: skip
    for model in "ab":
        vqa = pq.read_table(folder / f"vqa-{model}.parquet").to_pylist()
        for row in vqa:
            row["answer"] = "yes" if coins[row["image"]] == "tails" else "red"
        config = with_results(tmp_path, config, "vqa", model, pa.Table.from_pylist(vqa))
    run = c2b_ray.clip_bias(config, tmp_path / "run", via="here")
    for row in rows(run, metric="dba", attribute="coin"):
        assert math.isnan(row["value"])
        assert row["note"].endswith("without answers that are binary or numbers about images with the coin 'tails'")


@pytest.mark.long
def test_constant_predictions_and_captions_without_words(tables, tmp_path):
    folder, config = tables
    vqa = pq.read_table(folder / "vqa-b.parquet")
    constant = vqa.set_column(3, "prediction", pa.array(["red"] * vqa.num_rows))
    run = c2b_ray.clip_bias(with_results(tmp_path, config, "vqa", "b", constant), tmp_path / "run", via="here")
    (row,) = rows(run, metric="dba", attribute="coin", model="b")
    assert row["note"] == "constant predictions"
    assert math.isfinite(row["value"])
    assert any("predicts 'red' to every question" in note for note in run.manifest["notes"])
    captions = pq.read_table(folder / "captions-b.parquet")
    masked = captions.set_column(1, "caption", pa.array(["heads", "tails"] * (captions.num_rows // 2)))
    run = c2b_ray.clip_bias(with_results(tmp_path, config, "captions", "b", masked), tmp_path / "words", via="here")
    (row,) = rows(run, metric="lic", attribute="coin", model="b")
    assert math.isnan(row["value"])
    assert row["note"] == "no caption has words left after masking"


def test_groups_may_be_a_column_s_values(tables, tmp_path):
    _, config = tables
    quick = {"downstream": {}, "spaces": None, "groups": {"column": "die", "least": 30}}
    run = c2b_ray.clip_bias({**config, **quick}, tmp_path / "run", via="here")
    assert {row["group"] for row in rows(run, attribute="coin", view="local")} == {"1", "2", "3"}
    sizes = run.manifest["groups"]["people"]
    assert sum(sizes.values()) == 160
    assert all(row["n"] <= sizes[row["group"]] for row in rows(run, attribute="coin", view="local"))


def test_cue_conflict_images_with_texture_as_the_attribute(tmp_path):
    if not REAL.is_dir():
        pytest.skip("the cue-conflict images are not at hand")
    config = {
        "models": {"clip": "world:clip"},
        "datasets": {
            "cue-conflict": {
                "table": str(REAL / "labels.csv"),
                "columns": {"image": "file", "caption": "shape"},
                "attributes": ["texture"],
                "texts": ["a picture of a thing", "something outdoors"],
            }
        },
        "groups": {"k": 2},
        "chance": {"permutations": 100, "resamples": 50},
    }
    run = c2b_ray.clip_bias(config, tmp_path / "run", via="here")
    (kl,) = rows(run, metric="kl_recall@5", group="all")
    assert kl["n"] == 640
    assert kl["value_low"] <= kl["value"] <= kl["value_high"]
    (skew,) = rows(run, metric="max_skew@1000", group="all")
    assert skew["value"] >= 0
    assert skew["k"] == 64
