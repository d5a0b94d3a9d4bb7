"""Runs of every audit are loaded, reported, exported, gated and compared alike."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pkgutil import resolve_name
from typing import Literal

import pyarrow as pa
import pytest
from pydantic import Field
from run_recipes import Recipe
from synthetic_run import make_run

import c2b_ray
from c2b_ray import load_run
from c2b_ray.audits import audit, runs
from c2b_ray.audits.audit import AUDITS, Audit, audit_named
from c2b_ray.audits.c2b.run import load_c2b_run
from c2b_ray.audits.failures.run import load_failures_run
from c2b_ray.audits.tracking.record import record
from c2b_ray.config.named import ClassifierSpec, StrictModel, TablePath
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.report.words import Column, Summary
from c2b_ray.storage.run import Run, open_run


class CountRun(Run):
    """Of a kind made for these tests: one table of captions and how many images of each failed."""

    @property
    def counts(self) -> pa.Table:
        return self.read("counts")


def report(run):
    (path := pa.fs.LocalFileSystem()).create_dir(run.path)
    with path.open_output_stream(run.report) as stream:
        stream.write(f"<p>{run.counts.num_rows} captions</p>".encode())
    return run.report


def summary(run):
    return Summary("Captions", (Column("caption"),), [(c,) for c in run.counts["caption"].to_pylist()], ["bad"], ())


def as_lines(run, classifier):
    return "\n".join(run.counts["caption"].to_pylist()).encode()


AUDIT = Audit(
    name="counts",
    command_name="count",
    question="How many images of each caption failed?",
    about="Count failures.",
    config="c2b_ray.config.named:QuestionConfig",
    run="test_audit:summary",
    tables={"counts": pa.schema([pa.field("caption", pa.string()), pa.field("failed", pa.int64())])},
    run_class="test_audit:CountRun",
    report="test_audit:report",
    summary="test_audit:summary",
    needed=frozenset({"counts"}),
    exports={"txt": "test_audit:as_lines"},
)


@pytest.fixture
def counts(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "AUDITS", {**AUDITS, "counts": "test_audit:AUDIT"})
    with open_run(tmp_path / "counts", "a", {"task": "t"}, AUDIT) as run:
        run.write("counts", pa.table({"caption": ["a bus in fog"], "failed": [3]}))
        run.update({"status": "finished"})
    return tmp_path / "counts"


def test_an_audit_is_one_declaration(counts):
    run = load_run(counts)
    assert isinstance(run, CountRun)
    assert run.record.kind == "counts"
    assert run.counts["failed"].to_pylist() == [3]
    assert runs.write_report(run) == f"{counts}/report.html"
    assert runs.summary(run).rows == [("a bus in fog",)]
    assert runs.export(counts, "txt") == b"a bus in fog"
    assert run.to_pandas()["failed"].tolist() == [3]
    with pytest.raises(ConfigError, match=r"^RUN: .* holds no images"):
        run.failures()


def test_what_is_logged_of_a_run_are_the_exports_that_its_audit_has(counts):
    logged = record(load_run(counts))
    assert (logged.kind, logged.table, dict(logged.files)) == ("counts", None, {})


def test_a_run_of_another_kind_is_refused_by_both_commands(counts):
    with pytest.raises(ConfigError, match="is a run of c2b count; this needs one of c2b failures"):
        load_failures_run(counts)
    with pytest.raises(ConfigError, match="this needs one of c2b audit"):
        load_c2b_run(counts)


def test_what_a_kind_does_not_have_is_refused_by_name(counts, tmp_path):
    with pytest.raises(ConfigError, match="not a format of counts runs"):
        runs.export(counts, "model-card")
    with pytest.raises(ConfigError, match="a run of c2b count, which has no gates"):
        runs.check(counts, ["against"])
    with pytest.raises(ConfigError, match="such runs cannot be compared"):
        runs.compare(counts, counts)
    c2b = make_run(tmp_path / "c2b", Recipe())
    with pytest.raises(ConfigError, match="name two of one kind"):
        runs.compare(c2b, counts)


def test_a_directory_keeps_its_kind(counts, tmp_path):
    with pytest.raises(RunError, match="holds a run of c2b count"), open_run(counts, "a", {}, audit_named("c2b")):
        pass
    assert load_run(counts).counts.num_rows == 1


def test_a_kind_of_another_release_is_named(counts):
    manifest = json.loads((counts / "run.json").read_text())
    (counts / "run.json").write_text(json.dumps({**manifest, "kind": "poems"}))
    with pytest.raises(RunError, match="of the kind 'poems', which this release does not know"):
        load_run(counts)


def test_a_manifest_without_a_kind_is_a_c2b_run(tmp_path):
    path = make_run(tmp_path / "run", Recipe()).path
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest.pop("kind") == "c2b"
    (tmp_path / "run" / "run.json").write_text(json.dumps(manifest))
    assert load_run(path).kind.name == "c2b"


@pytest.mark.parametrize("name", AUDITS)
def test_every_declaration_names_what_is_there(name):
    one = audit_named(name)
    assert one.name == name
    questions = () if one.questions is None else (one.questions.check, one.questions.answer)
    functions = (one.run, one.run_class, one.manifest_class, one.findings, one.compare, one.summary, one.report)
    for place in (*functions, one.estimate, one.most_images, one.check, *questions, *one.exports.values()):
        assert not place or callable(resolve_name(place))
    assert one.config_class.model_fields.keys() >= {field.name.partition(".")[0] for field in one.form}
    assert one.models in one.config_class.model_fields


@pytest.mark.parametrize("name", AUDITS)
def test_every_audit_is_a_function_of_the_package(name):
    function = audit_named(name).function
    assert getattr(c2b_ray, function.__name__) is function


def test_a_declaration_that_contradicts_itself_is_refused():
    with pytest.raises(ConfigError, match="'Dark Images' names no audit"):
        replace(AUDIT, name="Dark Images")
    with pytest.raises(ConfigError, match="declares no table 'rates'"):
        replace(AUDIT, needed=frozenset({"rates"}))
    with pytest.raises(ConfigError, match="needs `findings`, or both a `summary` and a `report`"):
        replace(AUDIT, summary="")


class Fields(StrictModel):
    images: TablePath = "x"
    classifier: ClassifierSpec
    rule: Literal["top1", "top3"] = Field("top1", description="Which answers are failures.")
    least: int = 3
    most: int = Field(default_factory=lambda: 7)
    share: float = 0.1
    classes: list[str] = []  # noqa: RUF012
    sections: dict[str, int] = {}  # noqa: RUF012


def test_the_form_follows_from_the_config_where_none_is_declared():
    form = {field.name: field for field in replace(AUDIT, config="test_audit:Fields").form_fields}
    assert {name: field.type for name, field in form.items()} == {
        "images": "model", "classifier": "model", "rule": "choice", "least": "number", "most": "number",
        "classes": "words",
    }  # fmt: skip
    assert (form["images"].options, form["images"].default) == ("tables", "x")
    assert (form["classifier"].options, form["classifier"].default) == ("classifiers", "")
    assert (form["rule"].options, form["rule"].hint) == (("top1", "top3"), "Which answers are failures.")
    assert (form["least"].default, form["most"].default) == ("3", "7")


@pytest.fixture
def installed(monkeypatch):
    """Declares entry points as installed packages would."""

    def install(**references):
        found = [EntryPoint(name.replace("_", "-"), value, audit.ENTRY_POINTS) for name, value in references.items()]
        monkeypatch.setattr(audit, "entry_points", lambda group: found)
        audit._installed.cache_clear()

    yield install
    monkeypatch.undo()
    audit._installed.cache_clear()


def test_an_audit_of_another_package_is_found_by_its_name(installed):
    installed(counts="test_audit:AUDIT")
    assert audit_named("counts") is AUDIT
    assert audit.names() == [*AUDITS, "counts"]
    assert list(audit.audits()) == [*AUDITS, "counts"]


def test_what_is_no_audit_is_left_out_of_lists_and_named_where_it_is_used(installed):
    installed(broken="no_such_module:AUDIT", wrong="test_audit:installed", other_name="test_audit:AUDIT")
    with pytest.warns(UserWarning, match="cannot be loaded|is no `Audit` named"):
        assert list(audit.audits()) == list(AUDITS)
    for name, why in (("broken", "No module named"), ("wrong", "is no `Audit`"), ("other-name", "is no `Audit` named")):
        with pytest.raises(ConfigError, match=why):
            audit_named(name)
    with pytest.raises(ConfigError, match="there is no kind 'wrongs'; did you mean 'wrong'"):
        audit_named("wrongs")


@pytest.mark.parametrize("name", ["c2b", "question"])
def test_no_package_replaces_an_audit_of_ours(installed, name):
    installed(**{name: "test_audit:AUDIT"})
    with pytest.warns(UserWarning, match=f"there is an audit '{name}' already"):
        assert audit.names() == list(AUDITS)


def test_how_many_images_an_audit_takes_is_known_from_its_config():
    fields = {"task": "t", "classes": ["bus", "boat"], "classifier": "world:resnet-planted-0",
              "images": {"source": "generate", "generator": "world:renderer"},
              "attributes": {"size": ["small", "large"]},
              "images_per_caption": 8, "captions_per_cell": 1}  # fmt: skip
    c2b = audit_named("c2b")
    assert c2b.images_at_most(fields) == 2 * 2 * 8
    assert c2b.images_at_most({**fields, "classes": "all"}) is None
    assert audit_named("evaluate").images_at_most({}) is None
