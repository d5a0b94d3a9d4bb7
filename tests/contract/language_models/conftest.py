"""A Llama of random weights, in a folder and behind a URL, for the suites of language models."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from language_model_cases import CONTEXT, TEXTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from c2b_ray.models import catalog
from c2b_ray.models.transformers_lm import TransformersLanguageModel
from c2b_ray.roles import ChatRequest, LanguageModel, Message


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
