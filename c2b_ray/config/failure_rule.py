"""The names of the failure rules (Wiles et al. 2022), which are defined in `steps/discovery/rules.py`."""

from __future__ import annotations

from typing import Literal

FailureRule = Literal["top1", "top1_parent", "top3", "top3_parent"]
