"""What another audit's file calls differently is read, and comes to the same config, of which a run's id is made."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml

from c2b_ray.audits.dataset.config import read_dataset_config
from c2b_ray.audits.failures.config import read_failures_config
from c2b_ray.config import reading
from c2b_ray.config.reading import read_audit
from c2b_ray.errors import ConfigError

MODEL = "world:resnet-control-0"
FLAT = {"source": "labelled", "table": "photos.csv", "cluster": "camera"}
GENERATED = {"source": "generate", "generator": "world:renderer"}
BY_ONE = {"generate": {"model": "world:renderer"}}
NESTED = {"labelled": {"table": "photos.csv", "cluster": "camera"}}
AUDIT = {"task": "Classify pictures.", "classes": ["bus", "boat"], "classifier": MODEL, "images": FLAT}
SEARCH = {"labels": ["bus", "boat"], "classifier": MODEL, "images": NESTED}
AUDIT_DRAWN = AUDIT | {"attributes": {"weather": ["clear", "snow"]}, "images": GENERATED}
SEARCH_DRAWN = SEARCH | {"captioner": "world:vocabulary", "images": BY_ONE}
DATASET = {"classifier": MODEL, "images": {"labelled": {"table": "photos.csv"}}}


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    reading._say.cache_clear()


def _changed(fields: dict, lost: str, **more: object) -> dict:
    return {name: value for name, value in fields.items() if name != lost} | more


@pytest.mark.parametrize(
    ("read", "own", "other", "said"),
    [
        (read_audit, AUDIT, _changed(AUDIT, "classes", labels=["bus", "boat"]), "`labels` is read as `classes`"),
        (read_audit, AUDIT, _changed(AUDIT, "images", images=NESTED), "`images: {labelled: …}` is read as"),
        (read_failures_config, SEARCH, _changed(SEARCH, "labels", classes=["bus", "boat"]), "is read as `labels`"),
        (read_failures_config, SEARCH, _changed(SEARCH, "images", images=FLAT), "is read as `images: {labelled: …}`"),
        (read_failures_config, SEARCH_DRAWN, SEARCH_DRAWN | {"images": GENERATED}, "read as `images: {generate: …}`"),
        (read_audit, AUDIT_DRAWN, AUDIT_DRAWN | {"images": BY_ONE}, "is read as `images: {source: generate, …}`"),
        (
            read_dataset_config,
            DATASET,
            _changed(DATASET, "images", images={"source": "labelled", "table": "photos.csv"}),
            "is read as `images: {labelled: …}`",
        ),
    ],
)  # fmt: skip
def test_the_other_words_come_to_the_same_config_and_are_said_once(read, own, other, said, tmp_path, caplog) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    with caplog.at_level(logging.WARNING):
        expected = read(str(tmp_path / "own.yaml"))
        assert not caplog.messages
        found = [read(str(tmp_path / "other.yaml")) for _ in range(2)]
    assert [one.model_dump() for one in found] == [expected.model_dump()] * 2
    assert len(caplog.messages) == 1
    assert said in caplog.messages[0]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (AUDIT | {"labels": ["cat"]}, "labels: unknown key"),  # which of the two is meant cannot be told
        (AUDIT | {"images": {"labelled": "photos.csv"}}, "images"),
        (AUDIT | {"images": {**NESTED, "index": "faiss:x"}}, "images"),
        (
            AUDIT | {"images": {"labelled": {"table": "photos.csv", "tabel": 1}}},
            "images.tabel: unknown key; did you mean 'table'?",
        ),
    ],
)
def test_what_is_wrong_in_the_other_words_is_an_error_of_its_field(
    fields: dict, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        read_audit(fields)
    assert complaint in str(error.value)
