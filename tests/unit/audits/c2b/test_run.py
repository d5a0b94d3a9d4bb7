import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from audit_configs import audit_config

from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.run import CLASSIFIER, open_c2b_run
from c2b_ray.audits.runs import check, export
from c2b_ray.config import read_audit
from c2b_ray.errors import RunError, SourceError, StorageError
from c2b_ray.storage import files
from c2b_ray.storage.run import load_run
from c2b_ray.tables import CAPTIONS, DRAWS, POOLED, PREDICTIONS, REJECTED, SCORES

ROW = pa.Table.from_pylist([{"step": "propose", "about": "bus", "reply": "?", "reason": "not JSON"}], REJECTED)

CONFIG = audit_config().model_dump(mode="json")


def test_a_run_is_opened_again_with_what_it_holds(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        run.write("rejected", ROW)
        run.update({"models": {"x": {"spec": "1"}}})
        run.update({"models": {"y": {"spec": "2"}}})
    with open_c2b_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        assert run.rejected.equals(ROW)
        assert run.manifest["models"] == {"x": {"spec": "1"}, "y": {"spec": "2"}}
    assert load_run(tmp_path / "run").scores.num_rows == 0
    assert [name for name in files.entries(tmp_path / "run") if "tmp" in name] == []


def test_another_run_or_other_files_are_refused(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", {"tau": 0.05}):
        pass
    with pytest.raises(RunError, match="its tau differs"), open_c2b_run(tmp_path / "run", "b", {"tau": 0.1}):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match=r"thesis\.txt"), open_c2b_run(tmp_path / "mine", "a", {}):
        pass
    with pytest.raises(SourceError, match="no run there"):
        load_run(tmp_path / "mine")


def test_a_second_process_is_refused(tmp_path):
    code = (
        "import sys; from c2b_ray.audits.c2b.run import open_c2b_run\n"
        "from c2b_ray.errors import RunError\n"
        "try:\n    with open_c2b_run(sys.argv[1], 'a', {}): pass\n"
        "except RunError as error: print(error)"
    )
    with open_c2b_run(tmp_path / "run", "a", {}):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
    assert "another process is writing" in done.stdout


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        files.make_directory(tmp_path / "file" / "run")
    with pytest.raises(StorageError, match="no directory can be made there; choose another place"):
        files.make_directory("/proc/no/run")
    for write in (files.make_directory, lambda place: files.write_under(place / "x.xml", b"")):
        with pytest.raises(StorageError, match="file: a file, or a link to nothing"):
            write(tmp_path / "file")
    with pytest.raises(StorageError, match=r"n: a name in the path is too long"):
        files.make_directory(tmp_path / ("n" * 300))
    with pytest.raises(StorageError, match=r"no/x: the directory is missing"):
        files.write_bytes(tmp_path / "no" / "x", b"")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    place = tmp_path / "a.txt"
    files.write_bytes(place, b"old")
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="disk is full"):
        files.write_bytes(place, b"new")
    assert place.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_predictions_are_those_of_the_weights_at_hand(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", {}) as run:
        files.make_directory(run.location("predictions"))
        for revision, answer in (("old", "bus"), ("new", "boat")):
            row = {"prediction_id": revision, "image_id": "1", "classifier": "onnx:net", "revision": revision}
            part = pa.Table.from_pylist([{**row, "predicted_class": answer}], PREDICTIONS)
            files.write_table(f"{run.location('predictions')}/part-{revision}.parquet", part)
        run.update({"models": {f"{CLASSIFIER}onnx:net": {"spec": "onnx:net", "revision": "new"}}})
        assert run.predictions["predicted_class"].to_pylist() == ["boat"]
        assert run.read("predictions").num_rows == 2


def test_a_damaged_table_names_its_file_and_what_to_do(tmp_path):
    (tmp_path / "parts").mkdir()
    for place in (tmp_path / "rejected.parquet", tmp_path / "parts" / "part-1.parquet"):
        files.write_table(place, ROW)
        whole = place.read_bytes()
        zeroed = whole[:8] + bytes(40) + whole[48:]  # a page; the footer is whole
        for damaged in (whole[:-20], zeroed, b""):
            place.write_bytes(damaged)
            with pytest.raises(SourceError, match=rf"{place.name}: not a Parquet file that can be read .*copy it"):
                files.read_table(place if place.parent == tmp_path else place.parent)


def write_manifest(run, manifest):
    files.write_bytes(run.location("run.json"), json.dumps(manifest).encode())


def test_a_run_without_its_settings_is_no_run(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        write_manifest(run, {name: value for name, value in run.manifest.items() if name != "config"})
        with pytest.raises(RunError, match=r"run\.json: config: Field required"):
            run.config  # noqa: B018


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 99}, "a run of format 99, made by a later release.*install the newer"),
        ({"format": 3}, "a run of format 3, made by an earlier release.*run it again"),
        ({"format": None}, "names no format"),
        ({"status": "half"}, "status: Input should be 'running', 'finished' or 'failed'"),
        ({"models": {"encoder": "clip"}}, "models.encoder"),
    ],
)
def test_a_manifest_that_cannot_be_read_says_which_field_or_format(tmp_path, change, words):
    with open_c2b_run(tmp_path / "run", "a", {}) as run:
        write_manifest(run, run.manifest | change)
    with pytest.raises(RunError, match=words) as raised:
        load_run(tmp_path / "run")
    assert raised.value.run == run.location("run.json")


CHANGES = {
    "another table": lambda run: run.write("rejected", pa.concat_tables([ROW, ROW])),
    "a new table": lambda run: run.write("captions", CAPTIONS.empty_table()),
    "another setting": lambda run: run.update({"models": {"verifier": {"spec": "m"}}}),
    "parts": lambda run: run.begin_writing(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_finished_run_that_is_opened_again_is_finished_until_it_changes(tmp_path, change):
    finished_run(tmp_path / "run")
    manifest = (tmp_path / "run" / "run.json").read_bytes()
    with open_c2b_run(tmp_path / "run", "a", {}) as run:  # as a rerun that is refused after these two
        run.write("rejected", ROW)
        run.update({"models": {}})
    assert (tmp_path / "run" / "run.json").read_bytes() == manifest
    assert load_run(tmp_path / "run").record.status == "finished"
    with open_c2b_run(tmp_path / "run", "a", {}) as run:
        change(run)
        assert run.record.status == "running"
        assert run.record.tables is run.record.finished is None
        run.update({"status": "finished", "finished": "2026-01-01"})
    assert load_run(tmp_path / "run").record.finished == "2026-01-01"


def finished_run(place):
    with open_c2b_run(place, "a", CONFIG) as run:
        run.write("rejected", ROW)
        run.write("scores", SCORES.empty_table())
        files.make_directory(run.location("predictions"))
        row = {"prediction_id": place.name, "image_id": "1", "classifier": "m", "revision": "r"}
        part = pa.Table.from_pylist([row], PREDICTIONS)
        files.write_table(run.location("predictions/part-1.parquet"), part)
        run.update({"status": "finished", "models": {}})
    return run


def test_a_finished_run_that_lists_no_scores_is_damaged(tmp_path):
    run = finished_run(tmp_path / "run")
    (tmp_path / "run/scores.parquet").unlink()
    manifest = run.manifest
    for tables in (None, {name: entry for name, entry in manifest["tables"].items() if name != "scores"}):
        write_manifest(run, manifest | {"tables": tables})
        with pytest.raises(RunError, match=r"its table scores is not listed in its run\.json"):
            load_run(run.path)


def test_a_finished_run_that_lost_or_swapped_a_table_is_damaged_not_empty(tmp_path):
    run, other = finished_run(tmp_path / "run"), finished_run(tmp_path / "longer-name")
    write_report(run)
    page = (tmp_path / "run" / "report.html").read_bytes()
    more = pa.concat_tables([ROW, ROW])
    damages = {
        "scores.parquet is missing": lambda: (tmp_path / "run/scores.parquet").unlink(),
        "rejected.parquet is not the one": lambda: files.write_table(run.location("rejected.parquet"), more),
        "predictions/part-1.parquet is missing": lambda: (tmp_path / "run/predictions/part-1.parquet").unlink(),
        "predictions/part-1.parquet is not one": lambda: shutil.copy(
            other.location("predictions/part-1.parquet"), run.location("predictions")
        ),
        "predictions/part-2.parquet is not one": lambda: shutil.copy(
            run.location("predictions/part-1.parquet"), run.location("predictions/part-2.parquet")
        ),
        "captions was added": lambda: run.write("captions", CAPTIONS.empty_table()),
    }
    for words, damage in damages.items():
        shutil.copytree(tmp_path / "run", tmp_path / "whole")
        damage()
        for use in (load_run, export_scores, gate_scores):
            with pytest.raises(RunError, match=f"its table {words}") as raised:
                use(run.path)
            assert raised.value.run == run.path
        assert (tmp_path / "run" / "report.html").read_bytes() == page
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "whole").rename(tmp_path / "run")
    load_run(run.path)


def export_scores(path):
    return export(path, "csv")


def gate_scores(path):
    return check(path, ["against"])


def test_a_swapped_table_stops_a_rerun_and_a_lost_one_does_not(tmp_path):
    run = finished_run(tmp_path / "run")
    (tmp_path / "run/scores.parquet").unlink()
    with open_c2b_run(run.path, "a", CONFIG) as again:
        again.write("scores", SCORES.empty_table())
    files.write_table(run.location("rejected.parquet"), pa.concat_tables([ROW, ROW]))
    with open_c2b_run(run.path, "a", CONFIG) as again:  # running by now: its tables are still being made
        again.update({"status": "finished"})
    files.write_table(run.location("rejected.parquet"), ROW)
    with pytest.raises(RunError, match="delete it"), open_c2b_run(run.path, "a", CONFIG):
        pass


def test_what_a_killed_writer_left_is_cleaned_and_no_reason_to_refuse(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json.tmp-0123abcd").write_text("{")
    with open_c2b_run(tmp_path / "run", "a", CONFIG):
        pass
    (tmp_path / "run" / "scores.parquet.tmp-0123abcd").write_text("")
    (tmp_path / "run" / "mine.tmp-0123abcd").write_text("a user's own")
    with open_c2b_run(tmp_path / "run", "a", CONFIG):
        pass
    assert sorted(files.entries(tmp_path / "run")) == [".lock", "mine.tmp-0123abcd", "run.json"]


def test_a_table_of_another_schema_and_an_impossible_cosine_are_refused(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", CONFIG) as run:
        files.write_table(run.location("scores.parquet"), ROW)
        with pytest.raises(RunError, match=r"scores\.parquet: no column .*classifier"):
            run.scores  # noqa: B018
        row = {"caption_id": "c", "image_id": "i", "rank": 0, "source": "retrieve"}
        for cosine in (1.5, -2.0, float("nan")):
            run.write("draws", pa.Table.from_pylist([row | {"similarity": cosine}], DRAWS))
            with pytest.raises(RunError, match=r"draws\.parquet: a similarity outside \[-1, 1\]"):
                run.draws  # noqa: B018
        for cosine in (1.0, None, -1.0):
            run.write("draws", pa.Table.from_pylist([row | {"similarity": cosine}], DRAWS))
            assert run.draws.num_rows == 1


def test_columns_that_an_older_release_did_not_write_are_read_as_null(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", CONFIG) as run:
        old = POOLED.empty_table().drop_columns(["basis", "captions", "caption_spread"])
        files.write_table(run.location("pooled.parquet"), old)
        assert set(run.read("pooled").column_names) == set(POOLED.names)
        assert run.read("pooled", ["captions"]).schema.field("captions").type == POOLED.field("captions").type


def test_two_audits_that_differ_have_two_ids():
    table = {"task": "t", "classes": ["bus"], "classifier": "m:x", "images": {"source": "labelled", "table": "t.csv"}}
    given = read_audit(table | {"images_per_caption": 100})
    assert given.model_dump() != read_audit(table).model_dump()
    assert read_audit(table | {"tau": 0.05}).model_dump() == read_audit(table).model_dump()


def test_a_file_is_written_with_the_directories_above_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_under("made/deep/file.txt", b"x")
    files.write_under("beside.txt", b"y")
    assert (tmp_path / "made/deep/file.txt").read_bytes() == b"x"
    assert [entry.name for entry in (tmp_path / "made/deep").iterdir()] == ["file.txt"]
    with pytest.raises(StorageError, match="a directory is there"):
        files.write_under("made/deep", b"z")
    assert sorted(entry.name for entry in (tmp_path / "made").iterdir()) == ["deep"]


def test_a_finished_run_of_an_earlier_release_opens_with_a_table_that_this_one_does_not_know(tmp_path):
    with open_c2b_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        for name, schema in (("captions", CAPTIONS), ("draws", DRAWS), ("scores", SCORES)):
            run.write(name, schema.empty_table())
        run.update({"status": "finished"})
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "contents").mkdir()
    (tmp_path / "run" / "contents" / "part-0.parquet").write_bytes(b"1234")
    manifest["tables"]["contents"] = {"rows": 1, "parts": {"part-0.parquet": 4}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(manifest))
    load_run(tmp_path / "run").check()
