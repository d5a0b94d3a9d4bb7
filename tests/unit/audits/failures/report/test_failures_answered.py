"""An answer to a question, as the terminal, the endpoint and its pages show it."""

from c2b_ray.audits.failures.report.transfers import answer_lines


def test_a_line_has_the_rate_its_interval_the_baseline_and_the_verdict():
    row = {
        "classifier": "a", "caption": "a bus in fog", "target": "house", "failures": 108, "draws": 200,
        "rate_low": 0.4705, "rate_high": 0.608, "baseline_failures": 51, "baseline_draws": 280,
        "verdict": "not_shown", "q_value": 0.0312,
    }  # fmt: skip
    [line, any_failure] = answer_lines([row, {**row, "target": None}])
    assert line == (
        "a on 'a bus in fog': taken for house 108 of 200 (0.47 to 0.61), baseline 51 of 280; not shown (q 0.031)"
    )
    assert "any failure 108" in any_failure
