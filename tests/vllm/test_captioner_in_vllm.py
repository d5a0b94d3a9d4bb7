"""A captioner in vLLM: its role's suite through Ray Serve, its numbers beside those of transformers, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm
import torch
import yaml
from living import descendants, still_there
from test_captioners import (  # noqa: F401  collected here with the fixture below
    test_a_caption_contains_its_label_or_is_an_error,
    test_an_answer_is_one_of_its_own_choices,
    test_bad_images_are_errors_beside_good_ones,
    test_it_answers_what_it_sees,
    test_it_is_the_role,
    test_no_rows,
    test_read_only_images_are_taken,
    test_replies_do_not_depend_on_neighbours,
)
from tiny_vlm import CONTEXT, DARKNESS, LATE, NEVER, PLAIN
from transformers import AutoModelForImageTextToText, AutoProcessor

from c2b_ray import prompts
from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.models.captioned import question_prompt
from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import Captioner, Pixels, Question
from c2b_ray.serving.ensure import Served, ensure

pytestmark = pytest.mark.timeout(900)  # a replica that imports a new environment for the first time takes minutes

ROOT = Path(__file__).parents[2]
OPTIONS = "dtype=float32&enforce_eager=1&kv_cache_memory_bytes=67108864"

# Notes what vLLM is asked and answers beneath the captioner, waits, and is killed.
PROGRAM = """
import json, sys
import numpy as np
from c2b_ray.models import catalog
from c2b_ray.roles import Question

captioner = catalog.captioner(sys.argv[1])
chat, seen = captioner._engine.chat, []

def noted(chats, settings, **options):
    for each in settings:
        each.logprobs = 20
    outputs = chat(chats, settings, **options)
    for output in outputs:
        [reply] = output.outputs
        numbers = [{token: entry.logprob for token, entry in row.items()} for row in reply.logprobs]
        seen.append({"prompt": output.prompt_token_ids, "reply": list(reply.token_ids), "numbers": numbers})
    return outputs

captioner._engine.chat = noted
with np.load(sys.argv[2]) as file:
    images = [file[name] for name in sorted(file)]
captioner.caption(images, ["bus"] * len(images))
captioner.answer(images[:1], [Question(*json.loads(sys.argv[3]))])
print("said " + json.dumps(seen), flush=True)
sys.stdin.readline()  # until the test has killed the engine, or this process
try:
    captioner.caption(images, ["bus"] * len(images))
except Exception as error:
    print(f"said {type(error).__name__}: {error}", flush=True)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vlm")
    tiny_vlm.make(folder, tiny_vlm.idefics3)
    return folder


@pytest.fixture(scope="module")
def images() -> list[Pixels]:
    return tiny_vlm.pictures(6, seed=2)


@pytest.fixture(scope="module", params=["vllm"])
def captioner(served: Served, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captioner]:
    """Placed as `vllm-cpu.yaml` places the language model."""
    placement = yaml.safe_load((ROOT / "deployments" / "vllm-cpu.yaml").read_text())
    [app] = placement["applications"]
    app |= {"name": "captioner", "import_path": "c2b_ray.serving.app:captioner", "args": {"model": "vllm:tiny"}}
    app["deployments"][0] |= {"name": "Captioner"}
    file = tmp_path_factory.mktemp("placement") / "captioner.yaml"
    file.write_text(yaml.safe_dump(placement))
    with ensure(captioner=f"vllm:{tiny}?{OPTIONS}", placement=file) as apps:
        assert apps.captioner is not None
        yield apps.captioner


def test_it_is_described_without_vllm(captioner: Captioner, tiny: Path) -> None:
    known = catalog.describe("captioner", f"vllm:{tiny}?{OPTIONS}")
    assert known is not None
    assert known.revision == captioner.revision


def test_a_revision_is_of_the_precision_and_not_of_the_memory(tiny: Path) -> None:
    plain, small, rounded = (
        catalog.describe("captioner", f"vllm:{tiny}{options}")
        for options in ("", "?gpu_memory_utilization=0.5&max_num_seqs=4", "?dtype=bfloat16")
    )
    assert plain == small
    assert plain != rounded
    with pytest.raises(SpecError, match="max_num_seqs='none'"):
        catalog.describe("captioner", f"vllm:{tiny}?max_num_seqs=none")


def test_a_prompt_beyond_the_context_is_an_error_of_its_row(captioner: Captioner, images: list[Pixels]) -> None:
    long = Question("dark " * 2 * CONTEXT, ("dark", "light"))
    too_long, good = captioner.answer(images[:2], [long, DARKNESS])
    assert f"maximum context length is {CONTEXT}" in str(too_long.error)
    assert good.choice == "light"
    beyond, within = captioner.caption(images[:2], ["dark " * CONTEXT, PLAIN])
    assert "maximum context length" in str(beyond.error)
    assert within.text == "a light photo of a bus"


def test_answers_are_those_of_transformers(captioner: Captioner, tiny: Path) -> None:
    reference = catalog.captioner(f"hf-vlm:{tiny}?device=cpu")
    pictures = tiny_vlm.pictures(12, seed=4)
    labels = [PLAIN, LATE, NEVER] * 4
    assert captioner.caption(pictures, labels) == reference.caption(pictures, labels)
    there, here = (model.answer(pictures, [DARKNESS] * 12) for model in (captioner, reference))
    assert [answer.choice for answer in there] == [answer.choice for answer in here]


@contextmanager
def asked(tiny: Path, pictures: list[Pixels], folder: Path) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """The program, and what it says: first of its requests, then what came of another one."""
    np.savez(folder / "images.npz", **{str(i): image for i, image in enumerate(pictures)})
    command = [str(ROOT / ".venv-vllm" / "bin" / "python"), "-c", PROGRAM, f"vllm:{tiny}?{OPTIONS}"]
    command += [str(folder / "images.npz"), json.dumps([DARKNESS.text, DARKNESS.choices])]
    environment = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "WARNING"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as program:
        assert program.stdout is not None
        try:
            yield program, (line.removeprefix("said ") for line in program.stdout if line.startswith("said "))
        finally:
            program.kill()


def test_a_killed_engine_is_an_error_and_no_endless_wait(tiny: Path, images: list[Pixels], tmp_path: Path) -> None:
    with asked(tiny, images, tmp_path) as (program, said):
        next(said)
        [engine] = [pid for pid, name in descendants(program.pid).items() if "EngineCore" in name]
        os.kill(engine, signal.SIGKILL)
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        assert re.match("ServiceError: .*vLLM's engine (failed|was ended from outside)", next(said))


def test_prompts_and_numbers_are_those_of_transformers_and_the_engine_ends_with_its_owner(
    tiny: Path, tmp_path: Path
) -> None:
    # Of the model's size: transformers resizes otherwise with torchvision than without.
    pictures = [np.random.default_rng(i).integers(0, 256, (32, 32, 3), np.uint8) // (1 + i) for i in range(4)]
    with asked(tiny, pictures, tmp_path) as (program, said):
        requests = json.loads(next(said))
        started = descendants(program.pid)
        program.kill()
    assert any("EngineCore" in name for name in started.values())
    assert still_there(started) == []

    network, processor = AutoModelForImageTextToText.from_pretrained(tiny), AutoProcessor.from_pretrained(tiny)
    caption, question = prompts.messages("image_caption", label=PLAIN)[0].content, question_prompt(DARKNESS)
    shown = [*((image, caption) for image in pictures), (pictures[0], question)]
    first = []
    for seen, (image, text) in zip(requests, shown, strict=True):
        content = [{"type": "image"}, {"type": "text", "text": text}]
        prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        inputs = processor(text=prompt, images=[[to_pil(image)]], return_tensors="pt")
        assert seen["prompt"] == inputs["input_ids"][0].tolist()
        inputs["input_ids"] = torch.tensor([seen["prompt"] + seen["reply"]])
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        with torch.no_grad():
            log_probs = network(**inputs).logits[0, len(seen["prompt"]) - 1 : -1].log_softmax(-1)
        if text == question:  # held to its choices, so its numbers are of a part of the vocabulary
            assert int(log_probs[0].argmax()) == seen["reply"][0]
            continue
        for here, there in zip(log_probs, seen["numbers"], strict=True):
            expected = {token: float(here[int(token)]) for token in there}
            assert there == pytest.approx(expected, abs=1e-3)
        assert log_probs.argmax(1).tolist() == seen["reply"]
        first.append(max(seen["numbers"][1].values()))
    assert len(set(np.round(first, 2))) > 1  # pictures matter
