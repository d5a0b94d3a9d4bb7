"""Runs of every kind are loaded, reported, exported, gated and compared alike."""

from __future__ import annotations

import json
from pkgutil import resolve_name

import pyarrow as pa
import pytest
from run_recipes import Recipe
from synthetic_run import make_run

from c2b_ray import load_run
from c2b_ray.audits import runs
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.report.summary import Column, Summary
from c2b_ray.storage import kinds
from c2b_ray.storage.kinds import KINDS, RunKind, kind_named
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


KIND = RunKind(
    name="counts",
    command="c2b count",
    tables={"counts": pa.schema([pa.field("caption", pa.string()), pa.field("failed", pa.int64())])},
    run="test_kinds:CountRun",
    report="test_kinds:report",
    summary="test_kinds:summary",
    needed=frozenset({"counts"}),
    exports={"txt": "test_kinds:as_lines"},
)


@pytest.fixture
def counts(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", {**KINDS, "counts": "test_kinds:KIND"})
    with open_run(tmp_path / "counts", "a", {"task": "t"}, KIND) as run:
        run.write("counts", pa.table({"caption": ["a bus in fog"], "failed": [3]}))
        run.update({"status": "finished"})
    return tmp_path / "counts"


def test_a_kind_is_one_module(counts):
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
    with pytest.raises(RunError, match="holds a run of c2b count"), open_run(counts, "a", {}, kind_named("c2b")):
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


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_names_what_is_there(name):
    kind = kind_named(name)
    assert kind.name == name
    assert kind.needed <= kind.tables.keys()
    assert kind.in_parts <= kind.tables.keys()
    for place in (kind.run, kind.report, kind.summary, kind.gate, kind.compare, *kind.exports.values()):
        assert not place or callable(resolve_name(place))
