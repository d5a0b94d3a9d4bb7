"""Audits through actors, one of each source: their tables are those of the same audit in this process.

The bytes of a part are not compared: Ray cuts parts where it cuts blocks.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c2b_ray import audit
from c2b_ray.audits import index
from c2b_ray.audits.c2b.audit import audit as run_audit
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.kit.progress import Event
from c2b_ray.audits.kit.session import Session
from c2b_ray.storage.parts import read_stage
from c2b_ray.world.table import write_sample

NothingLoads = Callable[[], AbstractContextManager[None]]
SCENES = 120
KEYS = {"images": "image_id", "predictions": "prediction_id", "verifications": "verification_id"}
TABLES = ("proposals", "captions", "pool", "draws", "images", "verifications", "calibration", "predictions", "scores")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("world")
    write_sample(place / "scenes.parquet", SCENES, seed=1001)
    write_sample(place / "known.parquet", 120, seed=1002)
    index.build(str(place / "scenes.parquet"), "world:clip", str(place / "index"), Session("here"))
    return place


def config_of(source: str, place: Path) -> dict[str, Any]:
    images = {
        "labelled": {"source": "labelled", "table": str(place / "scenes.parquet")},
        "retrieve": {"source": "retrieve", "index": str(place / "index"), "pool": 8},
        "generate": {"source": "generate", "generator": "world:renderer?mislabel=0.2"},
    }[source]
    config = {
        "task": "Tell buses from boats.",
        "classes": ["bus", "boat"],
        "classifier": "world:resnet-planted-0",
        "images": images,
        "attributes": {"weather": ["fog", "clear"]},
        "images_per_caption": 6,
        "captions_per_cell": 1,
    }
    if source == "retrieve":
        config["verification"] = {"model": "world:clip", "calibration": str(place / "known.parquet")}
        config["classifier"] = {"planted": "world:resnet-planted-0", "zero-shot": "world:clip"}
        config |= {"classes": "all", "images_per_caption": 2}
    return config


def rows_of(run: C2BRun, table: str) -> list[dict[str, Any]]:
    rows = run.read(table)
    key = KEYS.get(table)
    return (rows.sort_by(key) if key else rows).to_pylist()


def check_equal(a: C2BRun, b: C2BRun) -> None:
    for table in TABLES:
        ours, theirs = rows_of(a, table), rows_of(b, table)
        assert len(ours) == len(theirs), table
        for x, y in zip(ours, theirs, strict=True):
            for name, value in x.items():
                check_value(value, y[name], f"{table}.{name}")


def check_value(a: Any, b: Any, what: str) -> None:
    """A batch of other images changes the last bits of a network's answer."""
    if isinstance(a, list):
        assert len(a) == len(b), what
        for x, y in zip(a, b, strict=True):
            check_value(x, y, what)
    elif isinstance(a, float):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=what)
    else:
        assert a == b, what


@pytest.mark.parametrize("source", ["labelled", "retrieve", "generate"])
def test_an_audit_through_actors_has_the_rows_of_one_in_this_process(
    source: str, place: Path, tmp_path: Path, nothing_loads_here: NothingLoads
) -> None:
    config = config_of(source, place)
    with nothing_loads_here():
        actors = audit(config, tmp_path / "actors", via="actors")
    here = audit(config, tmp_path / "here", via="here")
    assert (actors.manifest["via"], here.manifest["via"]) == ("actors", "here")
    assert actors.manifest["run_id"] == here.manifest["run_id"]
    assert actors.predictions.num_rows > 0
    assert np.isfinite(actors.scores["accuracy"].to_numpy(zero_copy_only=False)).any()
    assert actors.manifest["counts"] == here.manifest["counts"]
    check_equal(actors, here)


class Stopped(Exception):
    pass


@pytest.mark.parametrize(("first", "second"), [("actors", "here"), ("here", "actors")])
def test_a_run_that_began_in_one_place_goes_on_in_another(first: str, second: str, place: Path, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if event.step.startswith("classify") and event.kind == "end":
            raise Stopped

    config = config_of("labelled", place)
    with pytest.raises(Stopped):
        run_audit(config, tmp_path / "run", first, listener=stop)
    images = {part: part.stat().st_mtime_ns for part in (tmp_path / "run" / "images").glob("part-*")}
    assert images
    run = audit(config, tmp_path / "run", via=second)
    assert images == {part: part.stat().st_mtime_ns for part in images}
    assert read_stage(run.location("predictions"), ["error"])["error"].null_count == run.predictions.num_rows > 0


def test_an_index_built_in_actors_finds_what_one_built_here_finds(
    place: Path, tmp_path: Path, nothing_loads_here: NothingLoads
) -> None:
    with nothing_loads_here():
        built = index.build(str(place / "scenes.parquet"), "world:clip", str(tmp_path / "index"), Session("actors"))
    assert (built["images"], built["errors"]) == (SCENES, 0)
    (tmp_path / "captions.txt").write_text("a bus in the fog\na boat\n")
    found = []
    for where, via in [(place, "here"), (tmp_path, "actors")]:
        out = tmp_path / f"answers-{via}"
        captions = str(tmp_path / "captions.txt")
        assert index.search_many(str(where / "index"), captions, str(out), 5, Session(via)).rows == 2
        found.append(read_stage(str(out)).sort_by("row")["keys"].to_pylist())
    assert found[0] == found[1]
