"""What a placement file may hold; errors name the file and the field."""

import pytest

from c2b_ray.config.placement import read_placement
from c2b_ray.errors import ConfigError, SourceError

STAGES = {
    "{classify: {gpus: 1.5}}": "stages.classify.gpus: 1.5 is neither a share of one GPU nor a whole number",
    "{classify: {gpu: 1}}": "stages.classify.gpu: unknown key; did you mean 'gpus', 'cpus'",
    "{clasify: {}}": "stages.clasify: unknown key; did you mean 'classify'",
    "{classify: {min_actors: 4, max_actors: 2}}": "stages.classify: min_actors 4 is more than max_actors 2",
    "{classify: {min_actors: true}}": "stages.classify.min_actors: true is neither a number nor a text",
    "{classify: {min_actors: 0}}": "stages.classify.min_actors: .*greater than or equal to 1",
    "{classify: {cpus: .nan}}": "stages.classify.cpus: ",
    "{classify: {cpus: -1}}": "stages.classify.cpus: ",
    "{classify: {batch: many}}": "stages.classify.batch: .*valid integer",
    "{classify: {precision: int8}}": "stages.classify.precision: .*'bf16'.*not 'int8'",
    "{classify: {decode: gpu, gpus: 0}}": "stages.classify.decode: gpu needs a GPU, but gpus is 0",
    "{embed: {decode: nvjpeg}}": "stages.embed.decode: .*'gpu'.*not 'nvjpeg'",
    "{fetch: {decode: gpu}}": "stages: .*fetch.decode: only the stages classify and embed have it",
    "{classify: {labels: {pool: a b}}}": "stages.classify.labels: pool: 'a b' is not a selector",
    "{classify: {labels: {'a b': gpu}}}": "stages.classify.labels: 'a b' is not a name of a node label",
    "{classify: 3}": "stages.classify: expected a mapping of its fields",
    "{classify: {batch: 5, batch: 6}}": "the key 'batch' is given twice",
}
FILES = {
    "stage: {}": "stage: unknown key; did you mean 'stages'",
    "serve: nowhere.yaml": "serve: .*nowhere.yaml: no such Serve config",
    "- stages": "expected a mapping with `stages` or `serve`, got a list",
    "": "expected a mapping with `stages` or `serve`, got nothing",
}


@pytest.mark.parametrize(("text", "message"), [*FILES.items(), *((f"stages: {k}", v) for k, v in STAGES.items())])
def test_what_is_wrong_is_named_with_its_file(text, message, tmp_path):
    file = tmp_path / "placement.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as refused:
        read_placement(file)
    assert str(refused.value).startswith(f"{file}: ")


def test_no_file_and_no_mapping_are_named(tmp_path):
    with pytest.raises(SourceError, match=r"none\.yaml: no such file"):
        read_placement(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="placement: expected a placement file's path or a mapping"):
        read_placement(7)


def test_the_serve_config_is_found_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "serve.yaml").touch()
    (tmp_path / "placement.yaml").write_text("serve: serve.yaml")
    monkeypatch.chdir("/")
    config = read_placement(tmp_path / "placement.yaml")
    assert config.serve == str(tmp_path / "serve.yaml")
    assert config.file == str(tmp_path / "placement.yaml")


def test_nothing_said_leaves_everything_open():
    assert read_placement(None) == read_placement({}) == read_placement({"stages": {"classify": {}}})


def test_labels_of_ray_are_taken():
    labels = {"pool": "gpu", "ray.io/accelerator-type": "in(H100, A100)", "zone": "!b"}
    assert read_placement({"stages": {"fetch": {"labels": labels}}}).stage("fetch").labels == labels
