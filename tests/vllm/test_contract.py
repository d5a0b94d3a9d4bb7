"""What every LanguageModel must do, asked of vLLM behind Serve: the suite of tests/contract with this one model."""

from __future__ import annotations

import pytest
import torch
from test_language_models import (  # noqa: F401  collected here with the fixture below
    Case,
    test_a_bad_row_is_a_value_beside_good_ones,
    test_a_reply_depends_on_its_own_seed_not_on_its_batch,
    test_a_text_beyond_the_context_has_no_numbers,
    test_constrained_replies_satisfy_their_own_schema_in_order,
    test_free_and_constrained_rows_share_a_batch,
    test_greedy_replies_do_not_depend_on_the_seed,
    test_is_a_language_model,
    test_log_likelihood_is_the_sum_over_the_tokens_after_the_first,
    test_next_tokens_are_a_sorted_part_of_the_distribution,
    test_next_tokens_are_those_of_a_forward_pass,
    test_nothing_asked_nothing_answered,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from c2b_ray.serving.ensure import Served
from c2b_ray.world.zoo import WEIGHTS

pytestmark = pytest.mark.timeout(900)  # a replica that imports a new environment for the first time takes minutes


@pytest.fixture(scope="session")
def case(served: Served) -> Case:
    assert served.language_model is not None
    network = AutoModelForCausalLM.from_pretrained(WEIGHTS / "lm", dtype=torch.float32)
    return Case(served.language_model, network, AutoTokenizer.from_pretrained(WEIGHTS / "lm"))
