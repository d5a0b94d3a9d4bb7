"""`perturb` of an audit file: its three forms are one section, and a wrong name or level is named."""

import pytest

from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.config.images import PERTURBATIONS, USUAL_LEVELS
from c2b_ray.errors import ConfigError


def audit(tmp_path, **more):
    (tmp_path / "t.csv").write_text("image,target_class\n")
    fields = {"task": "t", "classes": ["a", "b"], "classifier": "timm:resnet18"}
    return read_audit({**fields, "images": {"source": "labelled", "table": str(tmp_path / "t.csv")}, **more})


def levels(tmp_path, perturb):
    return audit(tmp_path, perturb=perturb).perturb.levels


def test_true_a_list_and_a_mapping_say_which_perturbations_at_which_levels(tmp_path):
    usual = {name: USUAL_LEVELS if name != "flip" else (1,) for name in PERTURBATIONS}
    assert levels(tmp_path, True) == levels(tmp_path, {"images": 50}) == usual
    assert levels(tmp_path, ["fog", "blur"]) == {"blur": USUAL_LEVELS, "fog": USUAL_LEVELS}
    assert levels(tmp_path, {"blur": [5, 2], "images": 50}) == {"blur": (2, 5)}
    assert audit(tmp_path, perturb={"blur": [5, 2], "images": 50}).perturb.images == 50
    assert audit(tmp_path, perturb=["flip", "jpeg"]).perturb.pictures == 1 + 3 + 1


def test_without_it_a_configs_fields_and_so_its_runs_id_are_what_they_were(tmp_path):
    for off in ({}, {"perturb": None}, {"perturb": False}):
        assert "perturb" not in audit(tmp_path, **off).model_dump(mode="json")


def test_every_form_gives_fields_that_are_read_again_and_alike(tmp_path):
    for perturb in (True, ["blur"], {"blur": [1]}):
        config = audit(tmp_path, perturb=perturb)
        fields = config.model_dump(mode="json")
        assert AuditConfig.model_validate(fields) == config
        assert set(fields["perturb"]) == {"images", *config.perturb.levels}


@pytest.mark.parametrize(
    ("perturb", "problem"),
    [
        ({"blurr": [1]}, r"perturb\.blurr: unknown key; did you mean 'blur'"),
        (["fgo"], r"perturb\.fgo: unknown key; did you mean 'fog'"),
        ({"blur": [6]}, r"perturb\.blur\.0: .*less than or equal to 5"),
        ({"flip": [2]}, r"perturb\.flip\.0: .*less than or equal to 1"),
        ({"blur": [1, 1]}, r"perturb\.blur: \[1, 1\] names a level twice"),
        (["blur", "blur"], "names a perturbation twice"),
        ({"blur": []}, r"perturb\.blur: .*at least 1"),
        ({"images": 1, "blur": [1]}, r"perturb\.images"),
        ("blur", "expected a mapping"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, perturb, problem):
    with pytest.raises(ConfigError, match=problem):
        audit(tmp_path, perturb=perturb)


def test_images_whose_class_is_not_known_are_not_perturbed():
    with pytest.raises(ConfigError, match="perturb: the class of each image must be known"):
        read_audit(
            {
                "task": "t",
                "classes": ["a", "b"],
                "classifier": "timm:resnet18",
                "attributes": {"weather": ["fog", "rain"]},
                "images": {"source": "generate", "generator": "world:generator"},
                "perturb": True,
            }
        )
