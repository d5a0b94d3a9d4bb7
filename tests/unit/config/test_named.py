"""What a config's texts name, by the types of its fields: for every kind of config alike."""

from pathlib import Path

import pytest

from c2b_ray.audits.clip_bias.audit import read_clip_bias_config
from c2b_ray.audits.dataset.config import read_dataset_config
from c2b_ray.audits.evaluate.config import read_evaluate_config
from c2b_ray.audits.failures.config import read_failures_config
from c2b_ray.audits.prompts.config import read_prompts_config
from c2b_ray.config.latent import read_latent_config
from c2b_ray.config.named import Names, names_by_field, replaced_texts, texts_of
from c2b_ray.config.reading import read_audit
from c2b_ray.errors import ConfigError, InputError

READERS = {
    "audit": (
        read_audit,
        {
            "task": "t",
            "classes": ["bus"],
            "classifier": {"a": "onnx:a.onnx?labels=labels.txt", "b": "world:clip"},
            "images": {"source": "retrieve", "index": "index"},
            "language_model": "hf:local-dir:lm",
            "verification": {"model": "open_clip:local-dir:clip", "calibration": "known.csv"},
            "label_map": {"bus": ["data/bus", 3]},
        },
        6,
    ),
    "failures": (
        read_failures_config,
        {
            "labels": ["bus"],
            "classifier": "onnx:a.onnx",
            "images": {"generate": {"model": "diffusers:local-dir:g"}},
            "captioner": "hf-vlm:local-dir:vlm",
            "encoder": "open_clip:local-dir:clip",
            "language_model": "hf:local-dir:lm",
            "verifier": "open_clip:local-dir:clip",
            "hierarchy": "parents.yaml",
            "labelled": "known.csv",
            "generalise": {"generators": ["diffusers:local-dir:other"], "index": "index"},
        },
        10,
    ),
    "dataset": (
        read_dataset_config,
        {
            "captions": {"images": "hard", "captioner": "hf-vlm:local-dir:vlm"},
            "classifier": ["onnx:a.onnx", "onnx:b.onnx"],
            "images": {"generate": {"model": ["diffusers:local-dir:g", "world:renderer"]}, "index": "index"},
            "hierarchy": "world",
            "verify": {"captioner": "open_clip:local-dir:clip"},
        },
        9,
    ),
    "prompts": (
        read_prompts_config,
        {
            "subjects": ["bus"],
            "attributes": {"lighting": ["day", "night"]},
            "generators": {"base": "diffusers:local-dir:g"},
            "language_model": "hf:local-dir:lm",
            "judge": "open_clip:local-dir:clip",
            "reader": "hf:local-dir:reader",
            "encoder": "open_clip:local-dir:clip",
            "heads": {"teacher": "open_clip:local-dir:teacher", "files": "heads"},
        },
        7,
    ),
    "clip-bias": (
        read_clip_bias_config,
        {
            "models": {"a": "open_clip:local-dir:a"},
            "datasets": {"people": {"table": "people.parquet", "attributes": ["coin"], "texts": ["a/b"]}},
            "downstream": {"v": {"dataset": "people", "vqa": {"a": "vqa.parquet"}}},
            "spaces": {"dataset": "people", "after": {"a": "after.parquet"}, "before": {"a": "before.parquet"}},
            "leakage": {"guesser": "bert:local-dir:bert"},
        },
        6,
    ),
    "latent": (
        read_latent_config,
        {
            "classifier": {"one": "timm:local-dir:t"},
            "generator": "vae:local-dir:v",
            "latents": "latents.parquet",
            "hyperplanes": "planes.parquet",
            "captioner": "hf-vlm:local-dir:vlm",
        },
        5,
    ),
    "evaluate": (
        read_evaluate_config,
        {
            "classifier": "onnx:a.onnx",
            "truth": {"imagenet_x": {"annotations": "annotations", "folder": "images"}},
            "b2t": {"captioner": "hf-vlm:local-dir:vlm", "encoder": "open_clip:local-dir:clip"},
            "vqa": {"model": "hf-vlm:local-dir:vlm"},
            "retrieval": {"encoder": "open_clip:local-dir:clip"},
            "sentence_encoder": "sentence-transformers:local-dir:s",
            "methods": {"done": "run", "own": {"images": {"source": "retrieve", "index": "index"}, "task": "a/b"}},
        },
        8,
    ),
}
"""Reader, fields with relative paths, and how many texts name something."""


@pytest.mark.parametrize("kind", READERS)
def test_every_relative_path_becomes_absolute(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read, fields, count = READERS[kind]
    config = read(fields)
    named = list(texts_of(config))
    assert len(named) == count
    for one in named:
        assert str(tmp_path) in one.text or one.text.startswith("world"), one
    assert config == read(config)  # what is absolute stays


def test_the_methods_of_an_evaluation_have_absolute_paths_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read, fields, _ = READERS["evaluate"]
    methods = read(fields).methods
    assert methods["done"] == str(tmp_path / "run")
    assert methods["own"] == {"images": {"source": "retrieve", "index": str(tmp_path / "index")}, "task": "a/b"}


@pytest.mark.parametrize("kind", READERS)
def test_a_key_in_a_config_is_refused_however_the_config_is_handed_over(kind):
    read, fields, _ = READERS[kind]
    config = read(fields)
    secret = replaced_texts(
        config, lambda names, text: "https://user:secret@host/x" if names is SPECIAL[kind] else text
    )
    assert secret != config
    for source in (secret, secret.model_dump(exclude_unset=True)):
        with pytest.raises(InputError) as caught:
            read(source)
        assert "secret" not in str(caught.value)


SPECIAL = dict.fromkeys(READERS, Names.CLASSIFIER) | {"prompts": Names.LANGUAGE_MODEL, "clip-bias": Names.ENCODER}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_file_of_a_kind_says_how_to_see_what_one_holds(kind, tmp_path):
    read, _, _ = READERS[kind]
    file = tmp_path / "config.yaml"
    file.write_text("- a")
    with pytest.raises(
        ConfigError, match=r"expected a mapping of fields such as .*found a list; c2b .* --print-schema"
    ):
        read(file)
    with pytest.raises(ConfigError, match=r"expected the path of a file of c2b .*, found a int"):
        read(3)
    with pytest.raises(InputError, match=r"no such file.*--print-schema"):
        read(Path("absent.yaml"))


def test_a_label_map_in_a_config_names_no_file():
    read, fields, _ = READERS["audit"]
    assert read(fields).label_map == {"bus": ["data/bus", 3]}
    assert names_by_field(type(read(fields)))["label_map"] is Names.LABEL_MAP
