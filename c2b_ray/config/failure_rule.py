"""When an answer counts as a failure, by name (Wiles et al. 2022); what each means is in `steps/discovery/rules.py`."""

from __future__ import annotations

from typing import Literal

FailureRule = Literal["top1", "top1_parent", "top3", "top3_parent"]
