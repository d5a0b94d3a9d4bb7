"""What every LanguageModel must do, whatever stands behind it; log-probabilities against a forward pass by hand."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.openai_lm import OpenAILanguageModel
from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.models.transformers_lm import TransformersLanguageModel
from c2b_ray.roles import ChatReply, ChatRequest, LanguageModel, Message, ReplyContinuer, TokenLogProb

WORLD = Path(__file__).parents[2] / "c2b_ray" / "world" / "weights" / "lm"
CONTEXT = 512
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"enum": ["yes", "no", "perhaps"]},
        "parts": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "maxLength": 4}},
    },
    "required": ["answer", "parts"],
    "additionalProperties": False,
}
COLOURS = {"enum": ["red", "green", "blue"]}
TEXTS = ["a photo of a bus", "on", "a bus in heavy snow, at night", "two dogs"]


@dataclass(frozen=True)
class Case:
    """A model under test, and where its numbers must come from: a network with its tokenizer, None if it has none."""

    model: LanguageModel
    network: Any = None
    tokenizer: Any = None


def ask(text: str, **settings: Any) -> ChatRequest:
    return ChatRequest((Message("system", "Answer in JSON."), Message("user", text)), **settings)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a Llama of random weights with a byte-level tokenizer, as `from_pretrained` reads them."""
    folder = tmp_path_factory.mktemp("tiny")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*TEXTS, '{"answer":"yes","parts":["a"]}'] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}assistant:"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer) + 5,  # padded, as real ones are
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    network = LlamaForCausalLM(config)
    network.generation_config = GenerationConfig(eos_token_id=2, do_sample=True, temperature=0.7)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def service(tiny: Path) -> Iterator[str]:
    """An OpenAI-compatible server over the tiny model, on the loopback device."""
    model = catalog.language_model(f"hf:{tiny}?device=cpu")
    assert isinstance(model, TransformersLanguageModel)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                status, answer = (_chat if self.path == "/v1/chat/completions" else _complete)(body, model, tokenizer)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def _chat(body: Mapping[str, Any], model: LanguageModel, _: Any) -> tuple[int, dict[str, Any]]:
    assert body["model"] == "tiny"
    request = ChatRequest(
        tuple(Message(m["role"], m["content"]) for m in body["messages"]),
        body["response_format"]["json_schema"]["schema"] if "response_format" in body else None,
        body["temperature"],
        body["top_p"],
        body["max_tokens"],
        body["seed"],
    )
    reply = model.chat([request])[0]
    if reply.error and "context holds" in reply.error:
        return 400, {"error": {"message": "the prompt exceeds the maximum context length"}}
    finish = "length" if reply.error else "stop"
    return 200, {"choices": [{"message": {"role": "assistant", "content": reply.text}, "finish_reason": finish}]}


def _complete(body: Mapping[str, Any], model: LanguageModel, tokenizer: Any) -> tuple[int, dict[str, Any]]:
    ids = tokenizer(body["prompt"])["input_ids"]
    if len(ids) > CONTEXT:
        return 400, {"error": {"message": "the prompt exceeds the maximum context length"}}
    if not body.get("echo"):
        found = model.next_tokens([body["prompt"]], body["logprobs"])[0]
        top = {tokenizer.convert_ids_to_tokens(t.token_id) or f"<{t.token_id}>": t.log_prob for t in found}
        return 200, {"choices": [{"logprobs": {"top_logprobs": [top]}}]}
    prefixes = [tokenizer.decode(ids[:n], clean_up_tokenization_spaces=False) for n in range(1, len(ids) + 1)]
    sums = model.log_likelihood(prefixes)
    return 200, {"choices": [{"logprobs": {"token_logprobs": [None, *(b - a for a, b in pairwise(sums))]}}]}


def _scripted() -> ScriptedLanguageModel:
    def reply(request: ChatRequest) -> str:
        rng = Random(f"{request.messages} {request.seed if request.temperature else 0}")
        if request.schema == COLOURS:
            return json.dumps(rng.choice(COLOURS["enum"]))
        return json.dumps({"answer": "yes", "parts": [str(rng.randrange(1000))]})

    def tokens(text: str) -> list[TokenLogProb]:
        return [TokenLogProb(i, str(i), math.log(p)) for i, p in enumerate((0.1, 0.4, 0.2, 0.05))]

    return ScriptedLanguageModel(reply, tokens, lambda text: -float(len(text)))


@pytest.fixture(scope="session", params=["transformers", "openai", "scripted", "world"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "scripted":
        yield Case(_scripted())
        return
    if request.param == "world" and not (WORLD / "model.safetensors").exists():
        pytest.skip("the world's language model is not trained here")
    folder = WORLD if request.param == "world" else request.getfixturevalue("tiny")
    network, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        AutoTokenizer.from_pretrained(folder),
    )
    if request.param == "openai":
        model = catalog.language_model(f"openai:{request.getfixturevalue('service')}#tiny")
        assert isinstance(model, OpenAILanguageModel)
        yield Case(model, network, tokenizer)
        model.close()
    else:
        yield Case(catalog.language_model(f"hf:{folder}?device=cpu"), network, tokenizer)


def test_is_a_language_model(case: Case) -> None:
    assert isinstance(case.model, LanguageModel)


def test_nothing_asked_nothing_answered(case: Case) -> None:
    assert case.model.chat([]) == case.model.next_tokens([], 3) == case.model.log_likelihood([]) == []


def test_constrained_replies_satisfy_their_own_schema_in_order(case: Case) -> None:
    schemas = [SCHEMA, COLOURS, SCHEMA, COLOURS, SCHEMA]
    asked = [ask(f"question {i} {'more ' * i}", schema=s, temperature=1.0, seed=i) for i, s in enumerate(schemas)]
    replies = case.model.chat(asked)
    assert [reply.error for reply in replies] == [None] * 5
    for reply, schema in zip(replies, schemas, strict=True):
        jsonschema.validate(json.loads(reply.text), schema)


def test_a_reply_depends_on_its_own_seed_not_on_its_batch(case: Case) -> None:
    # Cut short, for speed: a text that is cut depends on its seed all the same.
    asked = [
        ask(f"say {'more ' * i}", schema=SCHEMA, temperature=1.0, top_p=0.95, seed=7, max_tokens=24) for i in range(4)
    ]
    together = case.model.chat(asked)
    assert case.model.chat(asked[::-1]) == together[::-1]
    assert case.model.chat([asked[0]]) + case.model.chat([asked[3]]) == [together[0], together[3]]
    others = case.model.chat([replace(asked[0], seed=seed) for seed in range(5)])
    assert len({reply.text for reply in others}) > 1


def test_greedy_replies_do_not_depend_on_the_seed(case: Case) -> None:
    asked = [ask("say", schema=SCHEMA, seed=seed) for seed in range(3)]
    assert len({reply.text for reply in case.model.chat(asked)}) == 1


def test_free_and_constrained_rows_share_a_batch(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no free text of its own")
    free, constrained = case.model.chat([ask("go on", max_tokens=4), ask("say", schema=SCHEMA)])
    jsonschema.validate(json.loads(constrained.text), SCHEMA)
    assert free == case.model.chat([ask("go on", max_tokens=4)])[0]


def test_a_bad_row_is_a_value_beside_good_ones(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no context")
    asked = [ask("x " * 2 * CONTEXT * 2), ask("say", schema=SCHEMA), ask("say", schema=SCHEMA, max_tokens=2)]
    too_long, good, cut = case.model.chat(asked)
    assert too_long.error is not None
    assert "context" in too_long.error
    assert good.error is None
    assert cut.error is not None
    assert "2 tokens" in cut.error


def test_next_tokens_are_a_sorted_part_of_the_distribution(case: Case) -> None:
    rows = case.model.next_tokens(TEXTS, 4)
    assert [len(row) for row in rows] == [4] * len(TEXTS)
    for row in rows:
        log_probs = [token.log_prob for token in row]
        assert log_probs == sorted(log_probs, reverse=True)
        assert sum(math.exp(p) for p in log_probs) <= 1 + 1e-6


def test_next_tokens_are_those_of_a_forward_pass(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no network")
    for text, row in zip(TEXTS, case.model.next_tokens(TEXTS, 5), strict=True):
        with torch.no_grad():
            logits = case.network(**_ids(case, text)).logits[0, -1]
        expected = logits.log_softmax(-1).topk(5)
        assert [token.log_prob for token in row] == pytest.approx(expected.values.tolist(), abs=1e-4)
        if isinstance(case.model, TransformersLanguageModel):
            assert [token.token_id for token in row] == expected.indices.tolist()


def test_replies_can_be_continued_token_by_token(case: Case) -> None:
    """What sequences share goes through the model once, and changes none of their numbers."""
    if not isinstance(case.model, ReplyContinuer):
        pytest.skip("a service takes texts, no tokens")
    start = case.model.reply_start([Message("user", "a bus")])
    [first, *_] = case.model.continuations([start], 3)[0]
    rows = [(*start, first.token_id), (*start, first.token_id, 7, 8), start[:2]]
    for at in (rows[:2], rows, rows[:2]):  # without a cache, past it, and with it
        for row, tokens in zip(at, case.model.continuations(at, 10_000), strict=True):
            with torch.inference_mode():
                expected = case.network(torch.tensor([row])).logits[0, -1].log_softmax(-1)
            assert len(tokens) == len(expected)
            assert max(abs(t.log_prob - float(expected[t.token_id])) for t in tokens) < 1e-4
    assert case.model.texts_of([(*start, first.token_id)])[0].endswith(first.token)
    assert case.model.end_tokens
    assert case.model.continuations([(), start * 600], 2) == [[], []]


def test_log_likelihood_is_the_sum_over_the_tokens_after_the_first(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no network")
    for text, found in zip(TEXTS, case.model.log_likelihood(TEXTS), strict=True):
        inputs = _ids(case, text)
        with torch.no_grad():
            log_probs = case.network(**inputs).logits[0].log_softmax(-1)
        ids = inputs["input_ids"][0].tolist()
        by_hand = sum(float(log_probs[place, ids[place + 1]]) for place in range(len(ids) - 1))
        assert found == pytest.approx(by_hand, abs=1e-3)


def test_a_text_beyond_the_context_has_no_numbers(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no context")
    texts = ["x " * 2 * CONTEXT * 2, TEXTS[0]]
    first, second = case.model.next_tokens(texts, 2)
    assert (first, len(second)) == ([], 2)
    lost, kept = case.model.log_likelihood(texts)
    assert math.isnan(lost)
    assert math.isfinite(kept)


def _ids(case: Case, text: str) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([case.tokenizer(text)["input_ids"]])}


def test_a_script_that_has_run_out_fails_loudly(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('["one", "two", "three"]')
    model = catalog.language_model(f"scripted:{path}")
    assert model.chat([ask("a"), ask("b")]) == [ChatReply("one"), ChatReply("two")]
    with pytest.raises(ServiceError, match="run out: 2 asked for, 1 of 3 left"):
        model.chat([ask("c"), ask("d")])
    assert model.chat([ask("c")]) == [ChatReply("three")]


@pytest.mark.parametrize("text", ["{}", "[1]", "no json"])
def test_a_script_is_a_list_of_texts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(SpecError):
        catalog.language_model(f"scripted:{path}")
    with pytest.raises(SpecError, match=r"missing\.json"):
        catalog.language_model(f"scripted:{tmp_path / 'missing.json'}")


def test_what_cannot_be_loaded_says_so(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="dtype"):
        catalog.language_model(f"hf:{tiny}?dtype=float31")
    with pytest.raises(SpecError, match="quantize"):
        catalog.language_model(f"hf:{tiny}?quantize=4")
    with pytest.raises(WeightsError, match=r"config\.json"):
        catalog.language_model(f"hf:{tmp_path}")
    silent = tmp_path / "silent"
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(silent)
    AutoModelForCausalLM.from_pretrained(tiny).save_pretrained(silent)


def test_a_base_model_reads_texts_and_cannot_be_asked(tiny: Path, tmp_path: Path) -> None:
    """As GPT-2, by which the paper on prompts measures perplexity."""
    asked = catalog.language_model(f"hf:{tiny}?device=cpu")
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.chat_template = tokenizer.eos_token = tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    network = AutoModelForCausalLM.from_pretrained(tiny)
    network.generation_config.eos_token_id = network.generation_config.pad_token_id = None
    network.save_pretrained(tmp_path)
    base = catalog.language_model(f"hf:{tmp_path}?device=cpu")
    assert base.log_likelihood(TEXTS) == pytest.approx(asked.log_likelihood(TEXTS), rel=1e-5)
    assert isinstance(base, ReplyContinuer)
    for wrong in (lambda: base.chat([ask("a")]), lambda: base.reply_start(ask("a").messages)):
        with pytest.raises(WeightsError, match="no chat template"):
            wrong()
    (tmp_path / "chat_template.jinja").write_bytes((tiny / "chat_template.jinja").read_bytes())
    endless = catalog.language_model(f"hf:{tmp_path}?device=cpu")
    with pytest.raises(WeightsError, match="end-of-sequence token, so no reply would end"):
        endless.chat([ask("a")])


def test_pickled_weights_are_refused(tiny: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="safetensors"):
        catalog.language_model(f"hf:{tmp_path}?device=cpu")
