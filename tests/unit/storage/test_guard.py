"""Every way a file of a run is committed asks the guard, in whichever thread; a refusal leaves what was there."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from c2b_ray.audits.audit import audit_named
from c2b_ray.audits.dataset.shard_files import ShardFiles
from c2b_ray.errors import RunError
from c2b_ray.storage import files
from c2b_ray.storage.parts import writing
from c2b_ray.storage.run import open_run

TABLE = pa.table({"id": ["a"]})


def refused(location: str) -> None:
    raise RunError(f"{location}: fenced off")


def a_document(folder):
    files.write_bytes(folder / "run.json", b"old")
    yield
    files.write_bytes(folder / "run.json", b"new")


def a_removal(folder):
    files.write_bytes(folder / "run.json", b"old")
    yield
    files.remove_file(folder / "run.json")


def a_directory_removed(folder):
    (folder / "work").mkdir()
    yield
    files.remove_directory(folder / "work")


def a_part(folder):
    with writing(str(folder)) as parts:
        yield
        parts.write(TABLE, "id")


def a_stage_begun(folder):
    yield
    with writing(str(folder)):
        pass


def a_table(folder):
    with open_run(folder, "r1", {}, audit_named("failures")) as run:
        yield
        run.write("candidates", run.read("candidates"))


def a_manifest(folder):
    with open_run(folder, "r1", {}, audit_named("failures")) as run:
        yield
        run.update({"spent": {"test": 1}})


def shards_of(folder):
    shards = ShardFiles(str(folder), "writer")
    shards.begin_writing()
    return shards


def a_shard(folder):
    shards = shards_of(folder)
    yield
    with shards.rows("shards/s.parquet", TABLE.schema) as rows:
        rows.add(TABLE)


def a_noted_table(folder):
    shards = shards_of(folder)
    yield
    shards.put_table("drops/s.parquet", TABLE, {})


def contents(folder) -> dict[str, bytes]:
    """Of every file but locks and what writers keep in folders of their own."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "writer"))
    return {str(path): path.read_bytes() for path in paths}


COMMITS = [
    a_document, a_removal, a_directory_removed, a_part, a_stage_begun, a_table, a_manifest, a_shard, a_noted_table,
]  # fmt: skip


@pytest.mark.parametrize("commit", COMMITS, ids=lambda commit: commit.__name__)
def test_a_commit_asks_and_a_refused_one_changes_nothing(tmp_path, commit):
    steps = commit(tmp_path)
    next(steps)
    before = contents(tmp_path)
    with files.commits_checked(refused), ThreadPoolExecutor(1) as other_thread:
        with pytest.raises(RunError, match="fenced off"):
            other_thread.submit(next, steps, None).result()
        assert contents(tmp_path) == before


def test_nobody_is_asked_outside_the_guard(tmp_path):
    asked = []
    with files.commits_checked(asked.append):
        files.write_bytes(tmp_path / "a", b"1")
    files.write_bytes(tmp_path / "b", b"2")
    assert asked == [str(tmp_path / "a")]
