"""What single captioners must do beyond their role: likelihoods against a forward pass by hand, services, scripts."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm
import torch
from chat_service import Service, chatting_over_http
from tiny_vlm import DARKNESS, PLAIN
from transformers import AutoModelForImageTextToText, AutoProcessor

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.captioned import question_prompt, scoring_prompt
from c2b_ray.models.json_service import RequestLimits
from c2b_ray.models.openai_api import LARGE, OpenAICaptioner, OpenAILanguageModel
from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import Answer, CaptionScorer, Pixels, Question
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


@pytest.fixture
def chat() -> Iterator[tuple[str, Service]]:
    with chatting_over_http() as found:
        yield found


# transformers


def test_likelihoods_are_those_of_a_forward_pass(tiny: Path, images: list[Pixels]) -> None:
    captioner = catalog.captioner(f"hf-vlm:{tiny}?device=cpu&batch=2")
    question = Question("How is it?", ("dark", "light", "a photo of a bus", "a photo"))
    [found] = captioner.answer(images[:1], [question])
    network, processor = AutoModelForImageTextToText.from_pretrained(tiny), AutoProcessor.from_pretrained(tiny)
    content = [{"type": "image"}, {"type": "text", "text": question_prompt(question)}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    sums = []
    for choice in question.choices:
        inputs = processor(text=f"{prompt} {choice}</s>", images=to_pil(images[0]), return_tensors="pt")
        length = len(processor.tokenizer(f"{choice}</s>")["input_ids"])
        with torch.no_grad():
            log_probs = network(**inputs).logits[0].log_softmax(-1)
        ids = inputs["input_ids"][0]
        sums.append(sum(float(log_probs[k - 1, ids[k]]) for k in range(len(ids) - length, len(ids))))
    expected = np.exp(sums) / np.exp(sums).sum()
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)


def test_scores_of_captions_are_log_likelihoods_of_a_forward_pass(tiny: Path, images: list[Pixels]) -> None:
    captioner = catalog.captioner(f"hf-vlm:{tiny}?device=cpu&batch=2")
    assert isinstance(captioner, CaptionScorer)
    texts = ["a dark photo of a bus", "a photo of a bus . it is on a table .", "light", "dark " * tiny_vlm.CONTEXT]
    scores = captioner.caption_scores([images[0], np.zeros((0, 5, 3), np.uint8), images[1]], texts)
    network, processor = AutoModelForImageTextToText.from_pretrained(tiny), AutoProcessor.from_pretrained(tiny)
    content = [{"type": "image"}, {"type": "text", "text": scoring_prompt()}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    expected = np.full((3, 4), np.nan)
    for row, image in ((0, images[0]), (2, images[1])):
        for column, text in enumerate(texts[:3]):
            inputs = processor(text=f"{prompt} {text}</s>", images=to_pil(image), return_tensors="pt")
            with torch.no_grad():
                log_probs = network(**inputs).logits[0].log_softmax(-1)
            ids = inputs["input_ids"][0]
            length = len(processor.tokenizer(f"{text}</s>")["input_ids"])
            expected[row, column] = sum(float(log_probs[k - 1, ids[k]]) for k in range(len(ids) - length, len(ids)))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    assert captioner.caption_scores([], texts).shape == (0, 4)
    assert captioner.caption_scores(images[:2], []).shape == (2, 0)


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_model_that_can_think_first_is_told_not_to(
    tiny: Path, tmp_path: Path, images: list[Pixels], where: str
) -> None:
    """As Qwen3's template: its answers were read off where its thoughts begin."""
    thinks = "{% if enable_thinking is not defined or enable_thinking %} <think>{% endif %}"
    plain, thinking = (Path(shutil.copytree(tiny, tmp_path / name)) for name in ("plain", "thinking"))
    for folder, end in ((plain, ""), (thinking, thinks)):
        template = folder / "chat_template.jinja"
        if where == template.name:
            template.write_text(template.read_text() + end)
        else:  # of the tokenizer alone, whose messages are texts
            template.unlink()
            settings = json.loads((folder / where).read_text())
            settings["chat_template"] = "{% for m in messages %}user : {{ m['content'] }} {% endfor %}assistant :" + end
            (folder / where).write_text(json.dumps(settings))
    question = Question("How is it?", ("dark", "light"))
    one, other = (
        catalog.captioner(f"hf-vlm:{it}?device=cpu").answer(images[:1], [question]) for it in (plain, thinking)
    )
    assert one == other


def test_a_prompt_whose_end_joins_a_choice_is_read_once(tiny: Path, tmp_path: Path, images: list[Pixels]) -> None:
    """Of a prompt that ends with a space, SentencePiece and the like make one token of the space and the choice."""
    folder = Path(shutil.copytree(tiny, tmp_path / "joins"))
    data = json.loads((folder / "tokenizer.json").read_text())
    words = {w if w.startswith("<") else f" {w}".replace(" night", " "): i for w, i in data["model"]["vocab"].items()}
    data["model"]["vocab"] = words
    data["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": " ?[^ ]+| "},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(data))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().rstrip() + " ")
    question = Question("How is it?", ("dark", "light"))
    [found] = catalog.captioner(f"hf-vlm:{folder}?device=cpu").answer(images[:1], [question])
    network, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    content = [{"type": "image"}, {"type": "text", "text": question_prompt(question)}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    assert prompt.endswith(": ")
    sums = []
    for choice in question.choices:
        inputs = processor(text=f"{prompt}{choice}</s>", images=to_pil(images[0]), return_tensors="pt")
        ids = inputs["input_ids"][0]
        assert ids[-2] == words[f" {choice}"]
        with torch.no_grad():
            log_probs = network(**inputs).logits[0].log_softmax(-1)
        sums.append(float(log_probs[-3, ids[-2]] + log_probs[-2, ids[-1]]))
    expected = np.exp(sums) / np.exp(sums).sum()
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)


def test_the_worlds_captioner_scores_captions_by_similarity(images: list[Pixels]) -> None:
    captioner = catalog.captioner("world:clip?device=cpu")
    assert isinstance(captioner, CaptionScorer)
    night, day = (render(sample(1, 3, lighting=lighting, target_class="bus")[0]) for lighting in ("night", "day"))
    texts = ["a realistic photograph of a bus. it is at night.", "a realistic photograph of a bus. it is by day."]
    scores = captioner.caption_scores([night, day, np.zeros((4, 4), np.uint8)], texts)
    assert scores[0, 0] > scores[0, 1]
    assert scores[1, 1] > scores[1, 0]
    assert np.isnan(scores[2]).all()


def test_a_scripted_captioner_scores_captions_where_its_script_has_scores(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"scores": [1, 2.5, -3, 0]}')
    captioner = catalog.captioner(f"scripted:{script}")
    assert isinstance(captioner, CaptionScorer)
    good = np.zeros((4, 4, 3), np.uint8)
    np.testing.assert_array_equal(
        captioner.caption_scores([good, good[:0], good], ["a", "b"]), np.float32([[1, 2.5], [np.nan] * 2, [-3, 0]])
    )
    with pytest.raises(ServiceError, match="the script of scores has run out"):
        captioner.caption_scores([good], ["a"])
    script.write_text('{"answers": ["day"]}')
    assert not isinstance(catalog.captioner(f"scripted:{script}"), CaptionScorer)


def test_a_prompt_beyond_the_context_is_an_error_of_its_row(tiny: Path, images: list[Pixels]) -> None:
    captioner = catalog.captioner(f"hf-vlm:{tiny}?device=cpu")
    long = Question("dark " * 2 * tiny_vlm.CONTEXT, ("dark", "light"))
    too_long, good = captioner.answer(images[:2], [long, DARKNESS])
    assert f"the model's context holds {tiny_vlm.CONTEXT}" in str(too_long.error)
    assert good.choice == "light"
    beyond, within = captioner.caption(images[:2], ["dark " * tiny_vlm.CONTEXT, PLAIN])
    assert "the model's context holds" in str(beyond.error)
    assert within.text == "a light photo of a bus"


def test_the_revision_follows_weights_and_processor(tiny: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny, tmp_path / "copy"))
    first = catalog.captioner(f"hf-vlm:{copy}?device=cpu").revision
    assert catalog.captioner(f"hf-vlm:{tiny}?device=cpu&batch=3").revision == first
    config = copy / "processor_config.json"
    config.write_text(config.read_text() + "\n")
    assert catalog.captioner(f"hf-vlm:{copy}?device=cpu").revision != first


def test_what_cannot_be_loaded_says_so(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'batch'"):
        catalog.captioner(f"hf-vlm:{tiny}?bach=4")
    with pytest.raises(SpecError, match="no such directory"):
        catalog.captioner("hf-vlm:no/such-model")
    shutil.copytree(tiny, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "copy" / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"holds no \.safetensors"):
        catalog.captioner(f"hf-vlm:{tmp_path / 'copy'}")
    shutil.copy(tiny / "model.safetensors", tmp_path / "copy")
    config = json.loads((tiny / "config.json").read_text())
    (tmp_path / "copy" / "config.json").write_text(json.dumps({**config, "model_type": "nonsense"}))
    with pytest.raises(WeightsError, match="makes no vision-language model of it"):
        catalog.captioner(f"hf-vlm:{tmp_path / 'copy'}")


# a URL


@pytest.mark.parametrize("schemas", ["heeded", "ignored", "refused"])
def test_a_service_that_knows_no_schemas_is_read_all_the_same(
    chat: tuple[str, Service], images: list[Pixels], schemas: str
) -> None:
    url, service = chat
    service.schemas = schemas
    captioner = catalog.captioner(f"openai:{url}#tiny")
    assert [answer.choice for answer in captioner.answer(images, [DARKNESS] * 6)] == ["dark", "light"] * 3
    sent = service.bodies[0]["response_format"]["json_schema"]["schema"]["properties"]["answer"]
    assert sent == {"type": "string", "enum": ["dark", "light"]}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("a bit of both", "named no choice: said 'a bit of both'"),
        ("dark or light", "named several choices: said 'dark or light'"),
        ("It is not dark.", "named no choice: said 'It is not dark.'"),
        ('{"answer": "grey"}', 'named no choice: said \'{"answer": "grey"}\''),
    ],
)
def test_a_reply_that_names_no_choice_is_an_error(
    chat: tuple[str, Service], images: list[Pixels], said: str, error: str
) -> None:
    url, service = chat
    service.answer = said
    assert catalog.captioner(f"openai:{url}#tiny").answer(images[:1], [DARKNESS]) == [Answer(None, None, error)]


def test_large_images_travel_as_jpeg(chat: tuple[str, Service]) -> None:
    url, service = chat
    side = math.isqrt(LARGE // 3) + 2
    image = np.full((side, side, 3), 200, np.uint8)
    assert catalog.captioner(f"openai:{url}#tiny").answer([image], [DARKNESS])[0].choice == "light"
    assert service.bodies[0]["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/jpeg;base64,")


def test_a_dead_service_is_an_exception_and_a_refused_row_is_not(
    chat: tuple[str, Service], images: list[Pixels]
) -> None:
    url, service = chat
    captioner = OpenAICaptioner(OpenAILanguageModel(url, "tiny", RequestLimits(5.0, 2, 4, first_wait_s=0.001)), "there")
    service.status = 413
    [answer] = captioner.answer(images[:1], [DARKNESS])
    [caption] = captioner.caption(images[:1], [PLAIN])
    assert answer.error == caption.error == "the service refused the request: not today"
    service.status = 500
    with pytest.raises(ServiceError, match="failed 2 times: HTTP 500"):
        captioner.answer(images, [DARKNESS] * 6)
    captioner.close()


# a script


def test_a_script_that_has_run_out_fails_loudly(tmp_path: Path, images: list[Pixels]) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"captions": ["a bus"], "answers": ["dark", "light", "neither"]}')
    captioner = catalog.captioner(f"scripted:{path}")
    assert captioner.caption(images[:1], ["bus"])[0].text == "a bus"
    empty = np.zeros((0, 1, 3), np.uint8)
    assert [a.choice for a in captioner.answer([empty, images[0]], [DARKNESS] * 2)] == [None, "dark"]
    with pytest.raises(ServiceError, match="script of answers has run out: 3 asked for, 2 of 3 left"):
        captioner.answer(images[:3], [DARKNESS] * 3)
    light, neither = captioner.answer(images[:2], [DARKNESS] * 2)
    assert (light.choice, neither.error) == ("light", "named no choice: said 'neither'")
    for text in ("[]", "{}", '{"captions": "x"}', '{"replies": []}'):
        path.write_text(text)
        with pytest.raises(SpecError, match="must hold"):
            catalog.captioner(f"scripted:{path}")


# vLLM


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_it_says_what_to_install(tiny: Path) -> None:
    with pytest.raises(SpecError, match="needs the package 'vllm': pip install"):
        catalog.captioner(f"vllm:{tiny}")
