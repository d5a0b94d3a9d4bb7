"""Gates check two values at once as they check single values."""

import pyarrow as pa
import pytest

from c2b_ray.audits.audit import audit_named
from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.errors import ConfigError
from c2b_ray.tables import INTERSECTIONS, SCORES

PAIR = "bus/weather × light/fog, day"


def cell(value, verdict, interaction, folded_into=None):
    names = {"classifier": "m", "target_class": "bus", "attribute": "weather × light", "bias_class": value}
    parts = dict(zip(("attribute_a", "attribute_b"), ("weather", "light"), strict=True))
    parts |= dict(zip(("value_a", "value_b"), value.split(", "), strict=True))
    counts = {"n": 300, "correct": 210, "errors": 0, "accuracy": 0.7, "phi": -0.2, "expected": 1.0}
    return {**names, **parts, **counts, "interaction": interaction, "verdict": verdict, "folded_into": folded_into}


@pytest.fixture
def run(tmp_path):
    """A run whose single values have no effect, and one of whose pairs has."""
    single = {"classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": "fog", "n": 600,
              "correct": 500, "errors": 0, "verdict": "none", "paper_verdict": 0, "phi": 0.0, "undecided": 0,
              "shared": 0, "mistaken": 0, "repeats": 0}  # fmt: skip
    fog_day, sun_day = cell("fog, day", "against", -0.3), cell("sun, day", "undetermined", None, "fog, day")
    with open_c2b_run(tmp_path / "run", "0123456789abcdef0123", {}) as run:
        run.write("scores", pa.Table.from_pylist([single], SCORES))
        run.write("intersections", pa.Table.from_pylist([fog_day, sun_day], INTERSECTIONS))
    return run


@pytest.mark.parametrize("gate", ["against", f"{PAIR}:against", "bus/weather × light/*:interaction<-0.1"])
def test_a_finding_of_two_values_fails_a_gate(run, gate):
    failing = [one for one in audit_named("c2b").check_gates(run, [gate]) if one.outcome == "failed"]
    assert [one.cell for one in failing] == [PAIR]
    assert "interaction -0.3" in failing[0].evidence


def test_what_another_combination_explains_has_no_verdict_and_no_combination_has_phi(run):
    assert [one.cell for one in audit_named("c2b").check_gates(run, ["none"])] == ["bus/weather/fog", PAIR]
    assert [one.cell for one in audit_named("c2b").check_gates(run, ["accuracy<0.5"])] == [
        "bus/weather/fog",
        PAIR,
        "bus/weather × light/sun, day",
    ]
    assert [one.cell for one in audit_named("c2b").check_gates(run, ["phi<-0.1"])] == ["bus/weather/fog"]
    with pytest.raises(ConfigError, match="no cell"):
        audit_named("c2b").check_gates(run, [f"{PAIR}:phi<0"])
