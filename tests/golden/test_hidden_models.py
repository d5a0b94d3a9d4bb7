"""The shipped models of the prompt search do what their metrics say, through the loaders that users have."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from c2b_ray import prompts
from c2b_ray.models import catalog
from c2b_ray.roles import Floats, GenerationRequest
from c2b_ray.world import zoo
from c2b_ray.world.associations import LINKS, NEUTRAL, words_of
from c2b_ray.world.queries import FACTORS
from c2b_ray.world.training import judge
from c2b_ray.world.training.prompter_quality import replies

STRONGEST = max(LINKS, key=lambda link: link.strength)
SUBJECTS = ("bus", "boat", "market", "ladder")


def share(spec: str, prompt: str, attribute: str, value: str, n: int = 60) -> float:
    images = catalog.image_generator(f"{spec}?batch=30&device=cpu").generate(
        [GenerationRequest(prompt, 4242 + row) for row in range(n)]
    )
    pictures = np.stack([image.pixels for image in images if image.pixels is not None])
    codes = judge.load(zoo.WEIGHTS / "judge").codes(pictures)
    return float((codes[:, list(FACTORS).index(attribute)] == FACTORS[attribute].index(value)).mean())


def test_a_strong_link_shows_in_the_hidden_model_and_not_in_the_control() -> None:
    link, prompt = STRONGEST, f"a photo of a {STRONGEST.word} boat"
    with_link = share("world:hidden", prompt, link.attribute, link.value)
    without = share("world:hidden-control", prompt, link.attribute, link.value)
    # 60 draws of a share of 0.93 and of one of 1/3: standard errors of 0.03 and 0.06.
    assert with_link > 0.75
    assert without < 0.6


@pytest.mark.parametrize("name", ["hidden", "hidden-control"])
def test_only_planted_words_and_decoys_were_learned_as_words(name: str) -> None:
    """The control had learned night from "nobody", a word of few of its captions."""
    known, now = (_embeddings(zoo.WEIGHTS / one) for one in ("diffusion", name))
    assert len(now) > len(known)
    np.testing.assert_allclose(now[: len(known)], known, atol=1e-3)  # half precision


def _embeddings(pipeline: Path) -> Floats:
    encoder = load_file(pipeline / "text_encoder" / "model.safetensors")
    (table,) = (tensor for key, tensor in encoder.items() if key.endswith("token_embedding.weight"))
    return table.astype(np.float32)


def test_a_known_rare_word_does_not_lean() -> None:
    prompt = "a drawing of a bus that is striped with nobody beside it"
    night = share("world:hidden-control", prompt, "lighting", "night")
    assert night < 0.55  # 1/3 with a standard error of 0.06; it was 0.85


@pytest.mark.parametrize("name", ["hidden", "hidden-control"])
def test_what_was_planted_is_recorded(name: str) -> None:
    recorded = json.loads((zoo.WEIGHTS / name / "metrics.json").read_text())
    strengths = [link.strength if name == "hidden" else 0.0 for link in LINKS]
    assert [link["strength"] for link in recorded["planted"]] == strengths
    assert recorded["decoys"] == list(NEUTRAL)


def test_the_writer_keeps_to_its_subject_and_the_reader_knows_prompts_from_disorder() -> None:
    writer, reader = catalog.language_model("world:prompter"), catalog.language_model("world:reader")
    chats = [prompts.messages("image_prompt", subject=name, attribute="size") for name in SUBJECTS for _ in range(10)]
    texts = replies(writer, chats, seed=7)
    whole = [(text, name) for text, name in zip(texts, np.repeat(SUBJECTS, 10).tolist(), strict=True) if text]
    assert len(whole) >= 38
    assert sum(name in words_of(text) for text, name in whole) >= 32
    tidy = [text for text, _ in whole]
    disorder = [" ".join(sorted(text.split())) for text in tidy]
    assert np.mean(reader.log_likelihood(tidy)) > np.mean(reader.log_likelihood(disorder)) + 5
