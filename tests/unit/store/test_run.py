import subprocess
import sys

import pyarrow as pa
import pytest

from c2b_ray.errors import RunError, SourceError, StorageError
from c2b_ray.schemas import PREDICTIONS, REJECTED
from c2b_ray.store import files, load_run
from c2b_ray.store.run import CLASSIFIER, open_run

ROW = pa.Table.from_pylist([{"step": "propose", "about": "bus", "reply": "?", "reason": "not JSON"}], REJECTED)


def test_a_run_is_opened_again_with_what_it_holds(tmp_path):
    with open_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        run.write("rejected", ROW)
        run.update({"models": {"x": 1}})
        run.update({"models": {"y": 2}})
    with open_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        assert run.rejected.equals(ROW)
        assert run.manifest["models"] == {"x": 1, "y": 2}
    assert load_run(tmp_path / "run").scores.num_rows == 0
    assert [name for name in files.entries(tmp_path / "run") if "tmp" in name] == []


def test_another_run_or_other_files_are_refused(tmp_path):
    with open_run(tmp_path / "run", "a", {"tau": 0.05}):
        pass
    with pytest.raises(RunError, match="its tau differs"), open_run(tmp_path / "run", "b", {"tau": 0.1}):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match=r"thesis\.txt"), open_run(tmp_path / "mine", "a", {}):
        pass
    with pytest.raises(SourceError, match="no run there"):
        load_run(tmp_path / "mine")


def test_a_second_process_is_refused(tmp_path):
    code = (
        "import sys; from c2b_ray.store.run import open_run\n"
        "from c2b_ray.errors import RunError\n"
        "try:\n    with open_run(sys.argv[1], 'a', {}): pass\n"
        "except RunError as error: print(error)"
    )
    with open_run(tmp_path / "run", "a", {}):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
    assert "another process is writing" in done.stdout


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        files.make_directory(tmp_path / "file" / "run")
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
    with open_run(tmp_path / "run", "a", {}) as run:
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


def test_a_run_without_its_settings_is_no_run(tmp_path):
    with open_run(tmp_path / "run", "a", {"tau": 0.05}) as run:
        run._write_manifest({name: value for name, value in run.manifest.items() if name != "config"})
        with pytest.raises(SourceError, match=r"run\.json.*no config"):
            run.config  # noqa: B018


def test_a_file_is_written_with_the_directories_above_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_under("made/deep/file.txt", b"x")
    files.write_under("beside.txt", b"y")
    assert (tmp_path / "made/deep/file.txt").read_bytes() == b"x"
    assert [entry.name for entry in (tmp_path / "made/deep").iterdir()] == ["file.txt"]
    with pytest.raises(StorageError, match="a directory is there"):
        files.write_under("made/deep", b"z")
    assert sorted(entry.name for entry in (tmp_path / "made").iterdir()) == ["deep"]
