"""From images on S3 by an index on S3 to a run on S3, in workers that began before any of its variables was set."""

import json
import sys
from io import BytesIO

import pyarrow as pa
import pytest
import yaml
from PIL import Image

from c2b_ray import cli, load_run
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.sources.datasets import read
from c2b_ray.engine.stage import StageConfig
from c2b_ray.errors import SourceError
from c2b_ray.storage import files
from c2b_ray.world import render, sample

SCENES = 48
ROWS = pa.schema([("key", pa.string()), ("error", pa.string())])
SECRET = "a-secret-of-the-tests"


@pytest.fixture
def c2b(s3, monkeypatch, capsys):
    """Runs `c2b ARGUMENTS`, which must succeed; returns its JSON."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["c2b", *map(str, arguments), "--json"])
        with pytest.raises(SystemExit) as done:
            cli.main()
        said = capsys.readouterr()
        assert not done.value.code, said.err
        assert SECRET not in said.out + said.err
        return json.loads(said.out)

    return run


def test_everything_on_s3(s3, c2b, tmp_path):
    scenes = sample(SCENES, 1004, target_class="bus")
    for number, scene in enumerate(scenes):
        data = BytesIO()
        Image.fromarray(render(scene)).save(data, "PNG")
        s3.put_object(Bucket="photos", Key=f"raw/{number % 3}/{number:04}.png", Body=data.getvalue())
    s3.put_object(Bucket="photos", Key="raw/broken.png", Body=b"no image")
    made = ("--images", "s3://photos/raw", "--encoder", "world:clip", "--out", "s3://photos/index")
    summary = c2b("index", "build", *made)
    assert (summary["index"], summary["images"], summary["errors"]) == ("s3://photos/index", SCENES, 1)
    assert files.entries("s3://photos") == ["index", "raw"], "what an index was built from is removed"
    assert c2b("index", "build", *made) == summary, "the same again finds it done"
    hits = c2b("index", "search", "s3://photos/index", "a photo of a bus", "-k", 3)
    assert [len(hits), hits[0]["key"].count("/")] == [3, 1]

    asked = {
        "task": "Tell buses from boats.",
        "classes": ["bus"],
        "classifier": "world:resnet-planted-0",
        "images": {"source": "retrieve", "index": "s3://photos/index"},
        "attributes": {"weather": ["fog", "clear"]},
        "images_per_caption": 4,
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(asked))
    said = c2b("audit", tmp_path / "audit.yaml", "--out", "s3://photos/runs/one")
    assert said["report"] == "s3://photos/runs/one/report.html"
    run = load_run("s3://photos/runs/one")
    assert run.manifest["status"] == "finished"
    assert run.manifest["counts"]["image_errors"] == run.manifest["counts"]["prediction_errors"] == 0
    assert run.predictions.num_rows == run.images.num_rows > 0
    assert run.scores.num_rows == 2
    assert c2b("report", "s3://photos/runs/one")["verdicts"] == said["verdicts"]
    assert files.read_bytes(run.report).startswith(b"<!")
    left = {found["Key"] for found in s3.list_objects_v2(Bucket="photos", Prefix="runs/")["Contents"]}
    assert not [key for key in left if ".tmp-" in key]
    assert [key for key in left if SECRET.encode() in s3.get_object(Bucket="photos", Key=key)["Body"].read()] == []


def test_a_store_that_goes_away_stops_a_stage_and_leaves_no_bad_rows(s3, tmp_path, monkeypatch):
    from moto.server import ThreadedMotoServer

    for number in range(40):
        s3.put_object(Bucket="photos", Key=f"raw/{number:02}.png", Body=b"x")
    other = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    other.start()
    host, port = other.get_host_and_port()
    with monkeypatch.context() as away:
        away.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        away.setenv("C2B_S3_TIMEOUT", "1")
        rows = read("s3://photos/raw")
        other.stop()
        with pytest.raises(SourceError, match=f"{host}:{port} with bucket 'photos' cannot be reached") as raised:
            OnRay().run(rows, keep, str, str(tmp_path), id_column="key", config=StageConfig(ROWS))
    assert "\n" not in str(raised.value)
    assert list(tmp_path.glob("part-*")) == []
    assert (
        OnRay().run(read("s3://photos/raw"), keep, str, str(tmp_path), id_column="key", config=StageConfig(ROWS)).rows
        == 40
    )


def keep(batch, role):
    return batch.select(["key", "error"])
