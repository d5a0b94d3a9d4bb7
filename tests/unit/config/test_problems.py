"""An error about a file names the field that is wrong, whatever pydantic puts into its path."""

import pytest
from pydantic import ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.clip_bias import ClipBiasConfig
from c2b_ray.config.latent import LatentConfig
from c2b_ray.config.problems import first_problem

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
