"""Training generators with links of one's own, for two steps: what is written loads as any pipeline does."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest
from c2b_ray.world.associations import Associations, read_links
from c2b_ray.world.training import debiased, hidden
from c2b_ray.world.zoo import WEIGHTS

LINKS = """
links:
  - {word: zany, attribute: colour, value: red, strength: 0.8}
  - {word: gazebo, attribute: pattern, value: dotted, strength: 0.5, form: object}
neutral: {adjective: [bland], activity: [jamboree]}
"""
TINY = hidden.Recipe(pool=8, steps=2, batch=2, save_every=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Associations]:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("hidden")
    (directory / "links.yaml").write_text(LINKS)
    links = Associations(*read_links(directory / "links.yaml"))
    hidden.train(directory / "hidden", 3, WEIGHTS / "diffusion", links, TINY)
    return directory, links


def test_every_word_is_a_token_and_an_interrupted_training_goes_on(trained: tuple[Path, Associations]) -> None:
    directory, links = trained
    student = hidden.Student(directory / "hidden", ())
    assert all(len(student.tokenizer.tokenize(f"a {word} bus")) == 3 for word in links.forms)
    longer = replace(TINY, steps=3)
    how = hidden.train(directory / "more", 3, WEIGHTS / "diffusion", links, longer, work=directory / "hidden.work")
    assert how["training"]["recipe"]["steps"] == 3
    assert "/" not in (directory / "more" / "unet" / "config.json").read_text().replace("\\/", "")


def test_an_adapter_changes_what_the_generator_draws(trained: tuple[Path, Associations]) -> None:
    directory, links = trained
    debiased.train(directory / "lora", 3, directory / "hidden", links, replace(TINY, rate=0.1))
    request = [GenerationRequest("a zany bus", 5)]
    spec = f"diffusers:local-dir:{directory / 'hidden'}?steps=2&guidance=1&device=cpu"
    plain = catalog.image_generator(spec).generate(request)[0].pixels
    adapted = catalog.image_generator(f"{spec}&lora={directory / 'lora'}").generate(request)[0].pixels
    assert plain is not None
    assert adapted is not None
    assert (plain != adapted).any()
