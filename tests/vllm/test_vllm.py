"""vLLM against transformers on the same weights; calls that overlap; the prefix cache; what cannot be loaded."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from living import descendants, still_there
from ray import serve

from c2b_ray import prompts
from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.models import catalog
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import Served, ensure
from c2b_ray.serving.handles import ServedLanguageModel
from c2b_ray.steps.propose import propose
from c2b_ray.steps.replies import PROPOSALS_SCHEMA, TEMPLATE_SCHEMA
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.zoo import WEIGHTS

pytestmark = pytest.mark.timeout(900)  # a replica that imports a new environment for the first time takes minutes

PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
PLACEMENT = Path(__file__).parents[2] / "deployments" / "vllm-cpu.yaml"
TASK = "Recognise everyday objects in photographs."
TEXTS = ["a photo of a bus", "on", "a bus in heavy snow, at night", "two dogs", "a boat under a bridge at dusk"]


@pytest.fixture(scope="module")
def model(served: Served) -> ServedLanguageModel:
    assert served.language_model is not None
    return served.language_model


@pytest.fixture(scope="module")
def reference() -> LanguageModel:
    return catalog.language_model("world:lm?device=cpu")


def proposals(**settings: Any) -> list[ChatRequest]:
    """What an audit of the world's classes asks first."""
    asked = [prompts.messages("propose", task=TASK, target_class=name) for name in CLASSES]
    return [ChatRequest(messages, PROPOSALS_SCHEMA, max_tokens=700, **settings) for messages in asked]


def test_greedy_replies_are_those_of_transformers(model: ServedLanguageModel, reference: LanguageModel) -> None:
    template = ChatRequest(prompts.messages("template", task=TASK), TEMPLATE_SCHEMA)
    free = [replace(request, schema=None) for request in proposals()[:3]]
    asked = [*proposals(), template, *free]
    replies = model.chat(asked)
    assert replies == reference.chat(asked)
    assert all(reply.error is None for reply in replies)


def test_numbers_are_those_of_transformers(model: ServedLanguageModel, reference: LanguageModel) -> None:
    np.testing.assert_allclose(model.log_likelihood(TEXTS), reference.log_likelihood(TEXTS), atol=1e-3)
    for there, here in zip(model.next_tokens(TEXTS, 50), reference.next_tokens(TEXTS, 50), strict=True):
        np.testing.assert_allclose([t.log_prob for t in there], [t.log_prob for t in here], atol=1e-4)
        assert [(t.token_id, t.token) for t in there[:5]] == [(t.token_id, t.token) for t in here[:5]]


def test_sampled_replies_satisfy_the_schema_and_repeat(model: ServedLanguageModel) -> None:
    asked = [replace(r, temperature=1.0, top_p=0.9, seed=seed) for seed, r in enumerate(proposals())]
    replies = model.chat(asked)
    for reply in replies:
        jsonschema.validate(json.loads(reply.text), PROPOSALS_SCHEMA)
    assert model.chat(asked) == replies
    others = model.chat([replace(asked[0], seed=seed) for seed in range(10, 14)])
    assert len({reply.text for reply in others}) > 1


def test_a_schema_that_cannot_constrain_is_the_rows_own_error(model: ServedLanguageModel) -> None:
    [good] = proposals()[:1]
    unlike = replace(good, schema={"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
    refused, answered = model.chat([unlike, good])
    assert refused.error is not None
    assert "schema" in refused.error
    assert answered.error is None


def test_the_step_that_asks_gets_proposals(model: ServedLanguageModel) -> None:
    found, rejected = propose(TASK, list(CLASSES[:3]), model, None, 0)
    assert rejected.num_rows == 0
    assert set(found.column("target_class").to_pylist()) == set(CLASSES[:3])


def test_single_calls_overlap_on_the_replica(model: ServedLanguageModel) -> None:
    channel = Channel(model.channel.app, in_flight=32)
    calls = [(model.spec, [request]) for request in proposals() * 3][:32]
    handle = serve.get_app_handle(channel.app)
    waiting = [handle.chat.remote(*call) for call in calls]
    running = 0
    for _ in range(200):
        running = max(running, handle.statistics.remote().result()["running"])
        if running > 4:
            break
    replies = [reply for response in waiting for reply in response.result()]
    assert running > 4
    assert replies == model.chat([request for _, [request] in calls])
    assert 1 in channel.call("statistics")["batches"]


def test_prompts_that_begin_alike_are_computed_once(model: ServedLanguageModel) -> None:
    before = model.channel.call("statistics")
    long = "a bus at night in the rain, " * 40
    model.next_tokens([long + "seen from above"], 1)
    model.next_tokens([long + "seen from afar"], 1)
    after = model.channel.call("statistics")
    asked = after["prompt_tokens"] - before["prompt_tokens"]
    cached = after["cached_prompt_tokens"] - before["cached_prompt_tokens"]
    assert asked / 4 < cached < asked / 2


def test_another_model_is_refused(model: ServedLanguageModel) -> None:
    with pytest.raises(ServiceError, match="serves 'vllm:"):
        ServedLanguageModel("vllm:other", model.channel).next_tokens(["a"], 1)


def test_an_environment_that_is_absent_is_named_with_what_makes_it(served: Served, tmp_path: Path) -> None:
    placement = yaml.safe_load(PLACEMENT.read_text())
    [deployment] = placement["applications"][0]["deployments"]
    deployment["ray_actor_options"]["runtime_env"]["py_executable"] = "nowhere/bin/python"
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(yaml.safe_dump(placement))
    with pytest.raises(ConfigError, match=r"no \S+/nowhere/bin/python; make it with deployments/vllm-cpu/install\.sh"):
        ensure(language_model="vllm:absent", placement=elsewhere)


def test_what_cannot_be_loaded_says_so_before_an_engine_starts(tmp_path: Path) -> None:
    pickled, silent = tmp_path / "pickled", tmp_path / "silent"
    for folder, left_out in ((pickled, "model.safetensors"), (silent, "chat_template.jinja")):
        shutil.copytree(WEIGHTS / "lm", folder)
        (folder / left_out).unlink()
    (pickled / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    specs = {
        f"vllm:{WEIGHTS / 'lm'}?quantise=4": "SpecError: .*unknown option 'quantise'",
        f"vllm:{WEIGHTS / 'lm'}?max_num_seqs=none": "SpecError: .*max_num_seqs='none'",
        f"vllm:{WEIGHTS / 'lm'}?dtype=float31": "SpecError: .*dtype='float31'",
        f"vllm:{tmp_path / 'nowhere'}": "WeightsError: .*no causal language model",
        f"vllm:{pickled}": "WeightsError: .*pickled weights are not read",
        f"vllm:{silent}": "WeightsError: .*no chat template",
    }
    program = (
        "import json, sys\n"
        "from c2b_ray.models import catalog\n"
        "for spec in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        catalog.language_model(spec)\n"
        "    except Exception as error:\n"
        "        print('said', type(error).__name__ + ':', str(error).replace('\\n', ' '))\n"
    )
    command = [str(PYTHON), "-c", program, json.dumps(list(specs))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    said = [line.removeprefix("said ") for line in run.stdout.splitlines() if line.startswith("said ")]
    assert len(said) == len(specs)
    for line, wanted in zip(said, specs.values(), strict=True):
        assert re.match(wanted, line), line


def test_a_killed_replica_takes_its_engine_along_and_is_replaced(model: ServedLanguageModel) -> None:
    replica = model.channel.call("statistics")["process"]
    engines = {pid: name for pid, name in descendants(replica).items() if "EngineCore" in name}
    assert len(engines) == 1
    os.kill(replica, signal.SIGKILL)
    assert still_there(engines) == []
    assert model.next_tokens(["a photo of a bus"], 1)[0][0].log_prob < 0
    assert model.channel.call("statistics")["process"] != replica
