"""What replicas refuse, and which models a self-test may ask."""

from __future__ import annotations

import pytest

from c2b_ray.errors import ServiceError
from c2b_ray.serving.batching import can_be_probed, refuse_other_model


def test_another_model_is_refused() -> None:
    refuse_other_model("D", "hf:a", "hf:a")
    with pytest.raises(ServiceError, match="serves 'hf:a', and was asked for 'hf:b'"):
        refuse_other_model("D", "hf:a", "hf:b")


def test_no_made_up_questions_for_urls_scripts_and_tables() -> None:
    assert can_be_probed("timm:resnet50")
    assert not any(can_be_probed(spec) for spec in ("openai:http://h/v1#m", "scripted:a.json", "table:t.csv"))
