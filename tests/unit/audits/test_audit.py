"""Runs of every audit are loaded, reported, exported, gated and compared alike."""

from __future__ import annotations

import json
from pkgutil import resolve_name

import pyarrow as pa
import pytest
from run_recipes import Recipe
from synthetic_run import make_run

from c2b_ray import load_run
from c2b_ray.audits import audit, runs
from c2b_ray.audits.audit import AUDITS, Audit, audit_named
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.report.summary import Column, Summary
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
    config="c2b_ray.config.question:QuestionConfig",
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
