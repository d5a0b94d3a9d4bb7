"""The files that stages read, of every kind of run: each node of a cluster needs them."""

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.kit.models import paths_read
from c2b_ray.config.audit import AuditConfig


def test_an_audits_table_of_known_images_is_read_by_stages_and_its_language_model_is_not():
    config = AuditConfig(
        task="t",
        classes=["bus"],
        classifier={"a": "onnx:/m/a.onnx?labels=/m/labels.txt"},
        language_model="hf:local-dir:/m/lm",
        images={"source": "retrieve", "index": "faiss:/m/index?nprobe=8"},
        verification={"model": "open_clip:local-dir:/m/clip", "calibration": "/m/known.csv"},
    )
    read = {
        "/m/a.onnx": "classifier.a",
        "/m/labels.txt": "classifier.a",
        "/m/index": "images.index",
        "/m/clip": "verification.model",
        "/m/known.csv": "verification.calibration",
    }
    assert paths_read(config) == read
    assert paths_read(config, in_driver=()) == {**read, "/m/lm": "language_model"}


def test_the_weights_of_a_group_guesser_are_read_by_stages():
    config = ClipBiasConfig(
        models={"a": "world:clip"},
        datasets={"people": {"table": "/m/people.parquet", "attributes": ["coin"]}},
        leakage={"guesser": "bert:local-dir:/m/bert"},
    )
    assert paths_read(config) == {"/m/people.parquet": "datasets.people.table", "/m/bert": "leakage.guesser"}


def test_an_index_is_its_folder_however_it_is_named():
    fields = {
        "labels": ["bus"],
        "classifier": "world:resnet-planted-0",
        "images": {"generate": {"model": "world:renderer"}},
        "captions": ["a bus in fog"],
    }
    for index in ("/m/index", "faiss:/m/index", "faiss:/m/index?nprobe=8"):
        config = FailuresConfig(**fields, generalise={"index": index})
        assert paths_read(config) == {"/m/index": "generalise.index"}
