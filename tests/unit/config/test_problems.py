"""An error about a file names the field that is wrong, whatever pydantic puts into its path."""

import pytest
from pydantic import ValidationError

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.dataset.config import DatasetConfig
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.latent import LatentConfig
from c2b_ray.config.reading import first_problem

LATENT = {"classifier": "world:resnet-planted-1", "generator": "world:diffusion", "label": "boat"}
CLIP = {"models": {"a": "world:clip", "b": "world:clip-05"}, "datasets": {"d": {"table": "t", "attributes": ["x"]}}}
AUDIT = {"task": "t", "classes": ["a"], "classifier": "world:clip", "language_model": "world:lm"}


@pytest.mark.parametrize(
    ("model", "fields", "field", "message"),
    [
        (LatentConfig, {**LATENT, "strips": {"latents": -1}}, "strips.latents", "greater than or equal to 0"),
        (LatentConfig, {**LATENT, "strips": {"often": 1}}, "strips.often", "unknown key; did you mean 'latents'?"),
        (LatentConfig, {**LATENT, "methods": ["nonsense"]}, "methods.0", "not 'nonsense'"),
        (LatentConfig, {**LATENT, "known": 3}, "known", "'none' or 'rest'"),
        (AuditConfig, {**AUDIT, "classes": []}, "classes", "name at least one class"),
        (AuditConfig, {**AUDIT, "images": {"source": "retrieve"}}, "images.source", "^retrieve needs `index`"),
        (ClipBiasConfig, {**CLIP, "performance": {"a": 1}}, "performance", "^'b' is missing"),
    ],
)
def test_a_problem_names_its_field(model, fields, field, message):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(fields)
    problem = first_problem(caught.value, None, model)
    assert problem.field == field
    said = str(problem).removeprefix(f"{field}: ")
    if message.startswith("^"):
        assert said.startswith(message[1:])
    else:
        assert message in said


def test_all_problems_of_a_file_are_told_each_once():
    fields = {**AUDIT, "taks": "t", "tau": -3, "images": {"source": "labeled", "tabel": "x", "columns": {"imge": "p"}}}
    with pytest.raises(ValidationError) as caught:
        AuditConfig.model_validate(fields)
    first, *others = str(first_problem(caught.value, None, AuditConfig)).splitlines()
    told = {line.partition(":")[0] for line in (first, *others)}
    assert told == {"taks", "tau", "images.source", "images.tabel", "images.columns.imge"}
    assert len(others) == 4
    assert "unknown key" in first  # before what follows from it


def test_a_file_of_nonsense_names_its_first_problems():
    with pytest.raises(ValidationError) as caught:
        AuditConfig.model_validate({**AUDIT, **{f"field {i}": i for i in range(50)}})
    lines = str(first_problem(caught.value, None, AuditConfig)).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "and 30 more"  # of 51: `images` is missing too


@pytest.mark.parametrize("model", [FailuresConfig, DatasetConfig])
def test_an_unknown_column_is_refused_with_the_nearest(model):
    images = {"labelled": {"table": "t.csv", "columns": {"imge": "path"}}}
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"classifier": "world:resnet-planted-1", "images": images})
    assert "'imge' is none of image, target_class, key; did you mean 'image'?" in str(caught.value)
