"""Scripts and folders of weights that give a LanguageModel, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from language_model_cases import TEXTS, ask
from transformers import AutoModelForCausalLM, AutoTokenizer

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.roles import ChatReply, ReplyContinuer


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
