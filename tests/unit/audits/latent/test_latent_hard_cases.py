"""`c2b latent` where searches go wrong quietly: several biases, many classes, spaces without room, generators that
ignore most of their latents."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn
from toy_latent import DIMENSION, toy_classifier, toy_generator, toy_labels

import c2b_ray
from c2b_ray.audits.latent.problems import check, check_gradients
from c2b_ray.config.latent import LatentConfig
from c2b_ray.errors import ConfigError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.latent_generators import LatentNetwork, NetworkConfig, network, write
from c2b_ray.models.memory_classifier import InMemory

pytestmark = pytest.mark.filterwarnings("ignore:.*channels_last.*")
TARGET, BOTH = (2.0, 0, 0, 0, 0, 0), (2.0, 1.5, 0.7, 0, 0, 0)
FAST = {
    "search": {"iterations": 12, "batch": 16, "walk": 3, "starts": 1},
    "evidence": {"latents": 600},
    "strips": {"latents": 0},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    generator = toy_generator(folder / "generator")
    return {"generator": generator, "latents": toy_labels(generator, folder / "labels.parquet")}


def searched(toy, out, models, problems, **fields):
    config = {**toy, **FAST, "problems": problems, **fields}
    return c2b_ray.latent_directions(config, out, via="here", classifier=models)


def test_of_two_biases_the_stronger_leads_and_without_it_the_weaker_is_found(toy, tmp_path):
    """A response that is linear in the latents has one direction, their sum; naming the first lays bare the second."""
    problems = [
        {"name": name, "target": "target", "biased": biased, "known": known}
        for name, biased, known in (
            ("one", "first", "none"),
            ("other", "second", "none"),
            ("without", "second", ["first"]),
        )
    ]
    rows = searched(toy, tmp_path / "r", toy_classifier(toy["generator"], BOTH), problems).directions.to_pylist()
    first, second, without = (row["cos_bias"] for row in rows)
    assert first > 0.85 > 0.55 > second > 0.3
    assert without > 0.9
    assert all(row["direction"][1 if row["problem"] != "without" else 2] > 0 for row in rows)  # towards a higher answer


def test_of_many_classes_the_named_one_is_watched_and_its_direction_points_to_more_of_it(toy, tmp_path):
    """The label is neither the first nor the last, and its answer falls along the attribute."""
    two = toy_classifier(toy["generator"], (2.0, -1.2, 0, 0, 0, 0))

    class Reordered(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            no, yes = self.module(images).unbind(dim=1)
            return torch.stack([no, yes, no - 3], dim=1)

    model = InMemory(Reordered(two.model), ["car", "bus", "boat"], two.preprocess)
    problem = {"label": "bus", "target": "target", "biased": "first"}
    (row,) = searched(toy, tmp_path / "r", model, [problem]).directions.to_pylist()
    assert (row["label"], row["verdict"]) == ("bus", "found")
    assert row["direction"][1] < -0.9
    assert row["effect"] > 0
    with pytest.raises(SpecError, match="has no label 'ship'; it has car, bus, boat"):
        searched(toy, tmp_path / "n", model, [{"label": "ship", "target": "target"}])


def test_known_attributes_that_depend_on_one_another_take_the_room_of_what_they_span(toy, tmp_path):
    axes = np.eye(DIMENSION)
    planes = {"target": axes[0], "first": axes[1], "twice": 2 * axes[1], "sum": axes[1] + axes[2], "second": axes[2]}
    planes |= {f"rest{k}": axes[k] for k in range(3, DIMENSION)}
    table = {"attribute": list(planes), "normal": [normal.tolist() for normal in planes.values()]}
    pq.write_table(pa.table(table), tmp_path / "planes.parquet")
    known = {"generator": toy["generator"], "hyperplanes": str(tmp_path / "planes.parquet")}
    model = toy_classifier(toy["generator"], (2.0, 1.5, 0, 1.2, 0, 0))
    names = ["first", "twice", "sum", "second", "rest4", "rest5"]  # as many as dimensions, of rank 4
    problems = [
        {"name": "dependent", "target": "target", "known": names},
        {"name": "whole", "target": "target", "known": [*names, "rest3"]},
    ]
    dependent, whole = searched(known, tmp_path / "r", model, problems).directions.to_pylist()
    assert dependent["verdict"] == "found"
    assert abs(dependent["direction"][3]) > 0.99
    assert whole["verdict"] == "undetermined"
    assert "span the whole latent space" in whole["reason"]


def test_answers_that_hardly_move_although_the_target_does_decide_nothing(toy, tmp_path):
    model = toy_classifier(toy["generator"], (0.02, 0.01, 0, 0, 0, 0))
    (row,) = searched(toy, tmp_path / "r", model, [{"target": "target"}]).directions.to_pylist()
    assert row["verdict"] == "undetermined"
    assert row["reason"].startswith("all but constant predictions")
    assert row["q_value"] is None


def test_baselines_give_several_directions_and_leave_the_targets_own_out(toy, tmp_path):
    model = toy_classifier(toy["generator"], (3.0, 1.5, 1.0, 0, 0, 0))
    fields = {"methods": ["axes", "hessian"], "directions": 2, "evidence": {"latents": 600, "margin": 0.0}}
    rows = searched(toy, tmp_path / "r", model, [{"target": "target"}], **fields).directions.to_pylist()
    axes = [np.argmax(np.abs(row["direction"])) for row in rows if row["method"] == "axes"]
    assert axes == [1, 2], "the largest changes but the target's"
    hessian = [np.array(row["direction"]) for row in rows if row["method"] == "hessian"]
    assert len(hessian) == 1 or abs(hessian[0] @ hessian[1]) < 1e-4
    assert "the target's own left out" in rows[0]["picked"]


def test_a_generator_that_ignores_most_of_its_latents(toy, tmp_path):
    """60 dimensions, of which the pictures show 6."""
    inner = NetworkConfig(kind="vae", dimension=DIMENSION, size=16, width=8, hidden=32)
    torch.manual_seed(1)
    shown = network(inner)
    config = inner.model_copy(update={"dimension": 60})
    wide: LatentNetwork = network(config)
    state = shown.state_dict()
    name = "decoder.0.weight"
    state[name] = torch.cat([state[name], torch.zeros(len(state[name]), 60 - DIMENSION)], dim=1)
    wide.load_state_dict(state)
    write(wide, config, tmp_path / "wide", half=False)
    generator = f"vae:local-dir:{tmp_path / 'wide'}"
    latents = catalog.latent_generator(generator).sample(1500, 77)
    columns = {name: latents[:, k] > 0 for k, name in enumerate(("target", "first"))}
    table = pa.table({"latent": pa.array(list(latents), pa.list_(pa.float32())), **columns})
    pq.write_table(table, tmp_path / "wide.parquet")
    models = {name: toy_classifier(toy["generator"], response) for name, response in (("a", BOTH), ("b", TARGET))}
    problems = [{"classifier": "a", "target": "target", "biased": "first"}, {"classifier": "b", "target": "target"}]
    fields = {"generator": generator, "latents": str(tmp_path / "wide.parquet")}
    biased, unbiased = searched(fields, tmp_path / "r", models, problems).directions.to_pylist()
    assert (biased["verdict"], unbiased["verdict"]) == ("found", "nothing found")
    assert biased["cos_bias"] > 0.75


def test_what_the_endpoint_may_refuse_where_a_config_is_submitted(toy, tmp_path):
    def config(**fields):
        return LatentConfig.model_validate({"generator": "world:latent-sprites-vae", **fields})

    with pytest.raises(ConfigError, match=r"classifier: onnx:net\.onnx: ONNX Runtime gives no gradients"):
        check_gradients(config(classifier="onnx:net.onnx"))
    classifiers = {"a": "world:latent-sprites-x-colour", "b": "https://c.example"}
    two = config(classifier=classifiers, problems=[{"classifier": "a"}, {"classifier": "b"}])
    with pytest.raises(ConfigError, match=r"classifier\.b: https://c\.example: no gradients pass through a URL"):
        check_gradients(two)
    absent = config(classifier="world:latent-sprites-x-colour", latents=str(tmp_path / "no.parquet"))
    with pytest.raises(ConfigError, match="latents: no such file"):
        check(absent, "here")
    with pytest.raises(SpecError, match="has no label 'up'; it has left, right"):
        check(config(classifier="world:latent-sprites-x-colour", label="up"), "here")


def test_nothing_found_does_not_speak_of_an_attribute_that_the_generator_shows_with_the_target_alone(toy, tmp_path):
    """The classifier looks at the attribute, not at the target; two degrees part them in the generator's images."""
    generator, angle = toy["generator"], np.radians(2)
    latents = catalog.latent_generator(generator).sample(1500, 77)
    response = (2 * np.cos(angle), 2 * np.sin(angle), 0, 0, 0, 0)
    columns = {"target": latents[:, 0] > 0, "tied": latents @ np.array(response) > 0, "first": latents[:, 1] > 0}
    table = pa.table({"latent": pa.array(list(latents), pa.list_(pa.float32())), **columns})
    pq.write_table(table, tmp_path / "tied.parquet")
    fields = {"generator": generator, "latents": str(tmp_path / "tied.parquet")}
    (row,) = searched(
        fields, tmp_path / "r", toy_classifier(generator, response), [{"target": "target"}]
    ).directions.to_pylist()
    assert row["verdict"] == "nothing found"
    assert "the target moves with tied (cosine" in row["reason"]
    assert "first (cosine" not in row["reason"]
    assert "the target moves with tied (cosine" in (tmp_path / "r" / "report.html").read_text()


def test_labels_that_name_the_opposite_of_the_watched_label_go_with_references(toy, tmp_path):
    """The label is yes where the target is above 0; the table calls that bus, which comes before car."""
    table = pq.read_table(toy["latents"])
    column = ["bus" if value else "car" for value in table["target"].to_pylist()]
    pq.write_table(table.set_column(1, "target", pa.array(column)), tmp_path / "latents.parquet")
    models = {
        name: toy_classifier(toy["generator"], response)
        for name, response in (("a", BOTH), ("b", (20.0, 0, 0, 0, 0, 0)))
    }
    problems = [{"classifier": "a", "target": "target", "biased": "first", "references": ["b"]}]
    fields = {"generator": toy["generator"], "latents": str(tmp_path / "latents.parquet")}
    (row,) = searched(fields, tmp_path / "r", models, problems).directions.to_pylist()
    assert row["verdict"] == "found", row["reason"]


def test_a_target_that_most_images_do_not_show_is_a_reservation(toy, tmp_path):
    """A poor generator's images show no target; answers to them say nothing of it, and directions lead there."""
    table = pq.read_table(toy["latents"])
    blank = np.abs(np.stack(table["latent"].to_pylist())[:, 0]) < 1
    column = pa.array([None if no else value for no, value in zip(blank, table["target"].to_pylist(), strict=True)])
    pq.write_table(table.set_column(1, "target", column), tmp_path / "few.parquet")
    model, problems = toy_classifier(toy["generator"], TARGET), [{"target": "target"}]
    few = searched({**toy, "latents": str(tmp_path / "few.parquet")}, tmp_path / "few", model, problems)
    assert f"{100 * blank.mean():.0f} % of the latents have no label of target" in few.problems["reason"][0].as_py()
    assert "searched with a reservation" in (tmp_path / "few" / "report.html").read_text()
    assert searched(toy, tmp_path / "all", model, problems).problems["reason"].to_pylist() == [None]
