"""Gates for continuous integration: conditions on cells that must not hold.

    GATE      = [CELL ":"] CONDITION        without a cell, every cell is looked at
    CELL      = class "/" attribute "/" value       `*` stands for anything: bus/*, */weather/fog
                                            */blur/3: a perturbation and its level
    CONDITION = worse | better | same       how a cell changed; in a comparison only
              | for | against | none        the verdict on a cell
              | failure | not_shown         the verdict on a caption; its cell is label "/" target "/" caption; that of
                                            a bias of a CLIP is dataset "/" metric "/" attribute "/" group
              | found                       the verdict on a direction; its cell is problem "/" method "/" rank
              | raises                      the verdict on a word; its cell is "word/" attribute "/" value "/" word,
                                            that of a method "gain/" or "frequency/" attribute "/" value "/" method
              | undetermined                of the change in a comparison, else of the verdict
              | MEASURE OP NUMBER           phi<-0.2, |phi|>0.15, phi_high<0, accuracy<0.5, difference<=-0.1, rate>0.01
    MEASURE   = a column of numbers that the findings or the comparison have, or its size between bars; an accuracy has
                the name of the metric that it holds (precision<0.5);
                of two values at once interaction, interaction_low, interaction_high, and no φ;
                of a run of failures or directions also findings; of a CLIP's biases value, value_low, value_high; of
                an evaluation hit, false_hit, hit_minus_false; its cell is method "/" rule "/" threshold "/" direction;
                of prompts gain, gain_low, gain_high, frequency, frequency_low, frequency_high, effect_low, effect_high
    OP        = < | <= | > | >=

A gate fails on each cell where its condition holds. On a cell without a number (no images, no prediction), or in doubt,
the condition cannot be decided: the check is skipped and says so; a count of images (n<30) is known of each cell. A
gate that was skipped on all of its cells checked nothing, and fails unless `allow_unchecked` is set. So does a gate on
verdicts of scores whose cells are all undetermined: that says nothing of the classifier, only that there are too few
images. Verdicts and changes allow for the number of cells, measures do not: of many cells without any effect, the
interval of one excludes 0. Where all classes are taken together, the class is `ALL_CLASSES`. It knows rows of scores
and comparisons; nothing of runs or of how checks are shown.
"""

from __future__ import annotations

import math
import operator
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, Literal

from c2b_ray.errors import Argument, ConfigError, Remedy, Surface, naming, nearest
from c2b_ray.names import folded
from c2b_ray.report.redact import clean, names_of

OPTION = Argument.FAIL_ON.named("terminal")
WORDS = {
    "worse": "change",
    "better": "change",
    "same": "change",
    "for": "verdict",
    "against": "verdict",
    "none": "verdict",
    "failure": "verdict",
    "not_shown": "verdict",
    "found": "verdict",
    "raises": "verdict",
}
EITHER = "undetermined"
ALL_CLASSES = "all classes"
EVERY_CELL = "every cell"
ALLOW = Argument.ALLOW_UNDETERMINED.named("terminal")
ALLOW_BEFORE = "--allow-unchecked"  # its name in earlier releases, which pipelines may still use
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EVIDENCE = (
    "accuracy_a", "accuracy_b", "value_a", "value_b", "difference", "difference_low", "difference_high", "accuracy",
    "phi", "phi_low", "phi_high", "interaction", "interaction_low", "interaction_high", "value", "value_low",
    "value_high", "rate", "rate_low", "rate_high", "baseline_rate", "ratio", "gain", "gain_low", "gain_high",
    "frequency", "frequency_low", "frequency_high", "effect", "effect_low", "effect_high", "hit", "false_hit", "miss",
    "hit_minus_false", "hit_minus_false_low", "hit_minus_false_high", "agreement", "q_value", "n", "pairs",
)  # fmt: skip

DECIDED = {"failure", "not_shown"}
"""Verdicts on captions, decided by a test on images of its own: also where none was left to measure the rate (`n`)."""

COUNTS = {"n", "pairs", "unshared", "unanswered", "errors", "repeats", "refused"}
"""Columns that are known of every cell, also of one without images or in doubt."""

RESTS_ON = {"captions": "unverified images", "verifier": "on the verifier's word"}
"""Remarks on numbers by the scores' column `basis`, where they rest on more than counting."""

_COMPARISON = re.compile(r"(?P<bar>\|?)\s*(?P<measure>[^\W\d]\w*)\s*(?P=bar)\s*(?P<sign><=|>=|<|>)\s*(?P<number>\S+)")


@dataclass(frozen=True)
class GateCell:
    """A cell that gates check: its name, and its columns by name."""

    classifier: str
    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One gate on one cell. `message`: the result; `evidence`: the cell's numbers. `remedy`: how its message ends,
    where that depends on where it is read."""

    gate: str
    classifier: str
    cell: str
    outcome: Literal["passed", "failed", "skipped"]
    message: str
    evidence: str
    remedy: Remedy | None = None

    def worded(self, surface: Surface) -> Check:
        """Returns the check with its message as it is read there."""
        if self.remedy is None:
            return self
        message = self.message.removesuffix(self.remedy.terminal) + self.remedy.worded(surface)
        return replace(self, message=message, remedy=None)

    def to_json(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if name != "remedy"}


@dataclass(frozen=True)
class _Gate:
    text: str
    cell: str
    column: str
    holds: Callable[[Any], bool]
    wants_undetermined: bool = False


def cells_of(rows: Iterable[Mapping[str, Any]], classifier: str = "") -> list[GateCell]:
    """Returns a cell per row of scores or of a comparison; rows that are pooled over classes name no class.

    `classifier`: of the rows that do not name one.
    """
    return [
        GateCell(
            row.get("classifier", classifier),
            f"{row.get('target_class', ALL_CLASSES)}/{row['attribute']}/{row['bias_class']}",
            _by_metric(row),
        )
        for row in rows
    ]


def _by_metric(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a row, with those of accuracy under the name of the metric that they hold."""
    metric = _metric_of(row)
    if metric == "accuracy":
        return dict(row)
    return {re.sub("^accuracy(?=$|_low$|_high$)", metric, name): value for name, value in row.items()}


def _metric_of(row: Mapping[str, Any]) -> str:
    return str(row.get("metric") or "accuracy").removeprefix("python:")


def check(gates: Sequence[str], cells: Sequence[GateCell], allow_unchecked: bool = False) -> list[Check]:
    """Checks every gate on every cell that it applies to, gates and cells in their order.

    A gate that was skipped on all of its cells has checked nothing, and one on verdicts that are all undetermined
    hardly more: one more check then fails and says so, unless `allow_unchecked` is set. Raises ConfigError for a gate
    that does not follow the grammar, that uses a measure that the cells do not have, or that applies to no cell; the
    message offers the nearest names.
    """
    checks: list[Check] = []
    for gate in [_parsed(text, cells) for text in gates]:
        of_gate = [_checked(gate, cell) for cell in _chosen(gate, cells)]
        checks += of_gate
        if not allow_unchecked and all(gate_check.outcome == "skipped" for gate_check in of_gate):
            reason = Counter(gate_check.message for gate_check in of_gate).most_common(1)
            why = f" ({reason[0][0]})" if reason else ""
            message = f"none of {len(of_gate)} cells could be checked{why}"
            remedy = naming("", Argument.ALLOW_UNDETERMINED, after=" lets that pass")
            checks.append(_of_every_cell(gate, of_gate, f"{message}; ", remedy))
        elif not allow_unchecked and (message := _undecided(gate, _chosen(gate, cells), of_gate)):
            checks.append(_of_every_cell(gate, of_gate, message, naming("or ", Argument.ALLOW_UNDETERMINED)))
    return checks


def _of_every_cell(gate: _Gate, checks: Sequence[Check], message: str, remedy: Remedy) -> Check:
    classifier = checks[0].classifier if checks else ""
    return Check(gate.text, classifier, EVERY_CELL, "failed", f"{message}{remedy.terminal}", "", remedy)


def _undecided(gate: _Gate, cells: Sequence[GateCell], checks: Sequence[Check]) -> str:
    """Returns why a gate on verdicts could hardly have failed: all of its cells that were checked are undetermined, for
    they have too few images; "" where one is decided. Only scores of single classes say what would settle a cell."""
    checked = [cell.values for cell, gate_check in zip(cells, checks, strict=True) if gate_check.outcome != "skipped"]
    is_verdict = gate.column == "verdict" and not gate.wants_undetermined
    of_scores = [row["images_to_settle"] for row in checked if "images_to_settle" in row]
    if not is_verdict or not of_scores or any(row["verdict"] != EITHER for row in checked):
        return ""
    to_settle = sorted(images for images in of_scores if images)
    advice = (
        f"it takes {to_settle[0]:,} to {to_settle[-1]:,} images of a cell to decide them"
        if to_settle
        else "more images may help"
    )
    return f"none of {len(checks)} cells is decided: all that could be checked are undetermined; {advice}, "


def failed(checks: Iterable[Check]) -> bool:
    return any(gate_check.outcome == "failed" for gate_check in checks)


def _parsed(text: str, cells: Sequence[GateCell]) -> _Gate:
    cell, _, condition = (part.strip() for part in text.rpartition(":"))
    columns = {name for gate_cell in cells for name in gate_cell.values}
    match = _COMPARISON.fullmatch(condition.replace("−", "-"))
    if match is None:
        column = _column(text, condition, columns, cells)
        return _Gate(text, cell, column, lambda value: bool(value == condition), condition == EITHER)
    measures = _measures(cells)
    measure, sign, sized = match["measure"], match["sign"], bool(match["bar"])
    if measure not in measures:
        raise ConfigError(
            Argument.FAIL_ON, f"{text!r}: there is no measure {measure!r} here; {nearest(measure, measures)}"
        )
    bound = _number(text, match["number"])
    compare = OPERATORS[sign]
    return _Gate(text, cell, measure, lambda value: compare(abs(value) if sized else value, bound))


def _measures(cells: Sequence[GateCell]) -> set[str]:
    """Returns the columns of numbers, also those in which no cell has one yet."""
    names = {name for cell in cells for name in cell.values} - {"doubt"}
    not_numbers = {name for cell in cells for name, value in cell.values.items() if not _is_number(value)}
    return names - not_numbers


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, Real) and not isinstance(value, bool))


def _column(text: str, word: str, columns: set[str], cells: Sequence[GateCell]) -> str:
    """Returns the column in which a word is looked up."""
    if word == EITHER:
        return "change" if "change" in columns else "verdict"
    column = WORDS.get(word)
    if column is None:
        valid_names = {*WORDS, EITHER, "phi<-0.2", "phi>0.2"}
        raise ConfigError(
            Argument.FAIL_ON, f"{text!r}: {word!r} is neither a word nor a comparison; {nearest(word, valid_names)}"
        )
    if column in columns:
        return column
    if column == "change":
        raise ConfigError(Argument.FAIL_ON, f"{text!r}: {word!r} is a change between two runs: use c2b compare")
    if "change" in columns:
        raise ConfigError(Argument.FAIL_ON, f"{text!r}: {word!r} is a verdict on one: use c2b gate")
    words = [name for name, column_name in WORDS.items() if column_name in columns]
    valid_names = _measures(cells)
    measures = [f"{name}>0.1" for name in EVIDENCE if name in valid_names]
    raise ConfigError(
        Argument.FAIL_ON, f"{text!r}: this run has no cell with {word!r}; it has {', '.join([*words, *measures[:3]])}"
    )


def _number(text: str, digits: str) -> float:
    try:
        bound = float(digits)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise ConfigError(Argument.FAIL_ON, f"{text!r}: {digits!r} is not a number")
    return bound


def _chosen(gate: _Gate, cells: Sequence[GateCell]) -> list[GateCell]:
    cells = [cell for cell in cells if gate.column in cell.values]  # others are about something else
    if not gate.cell:
        return cells
    form = _form(gate.cell)
    matching = [cell for cell in cells if _form(cell.name) == form]
    if not matching and "*" in gate.cell:
        # Only * is special: names may hold any other sign.
        pattern = re.sub(r"([?\[])", r"[\1]", form)
        matching = [cell for cell in cells if fnmatchcase(_form(cell.name), pattern)]
    if not matching:
        names = nearest(gate.cell, {cell.name for cell in cells})
        raise ConfigError(Argument.FAIL_ON, f"{gate.text!r}: the run has no cell {gate.cell!r}; {names}")
    return matching


def _form(cell: str) -> str:
    """Returns a cell's name in the form in which names are one: in whatever case, spaces and form of accents."""
    return "/".join(map(folded, cell.split("/")))


def _checked(gate: _Gate, cell: GateCell) -> Check:
    value, images = cell.values.get(gate.column), cell.values.get("n")
    if gate.column == "change":
        images = cell.values.get("pairs", images)
    is_count = gate.column in COUNTS
    if value is None or value != value or not (images or value in DECIDED or is_count):
        return Check(gate.text, cell.classifier, cell.name, "skipped", f"{gate.column} is not known: no images", "")
    if cell.values.get("doubt") and not gate.wants_undetermined and not is_count:
        reason = f"{gate.column} is in doubt: {cell.values['doubt']}"
        return Check(gate.text, cell.classifier, cell.name, "skipped", reason, _evidence(cell.values))
    return Check(
        gate.text,
        cell.classifier,
        cell.name,
        "failed" if gate.holds(value) else "passed",
        f"{gate.column} is {_shown(value)}",
        _evidence(cell.values),
    )


def _evidence(values: Mapping[str, Any]) -> str:
    names = (_metric_of(values) if name == "accuracy" else name for name in EVIDENCE)
    numbers_of_cell = ((name, values.get(name)) for name in names)
    numbers = [f"{name} {_shown(value)}" for name, value in numbers_of_cell if value is not None and value == value]
    return ", ".join([*numbers, *([RESTS_ON[values["basis"]]] if values.get("basis") in RESTS_ON else [])])


def _shown(value: Any) -> str:
    """Returns a word, a count with all its digits, or another number with four."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Checks of gates as JUnit XML, which every CI system shows: a test case per gate and cell.


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(suite: str, checks: Sequence[Check], properties: Mapping[str, str]) -> bytes:
    """Returns a document with one test suite. A failed check is a failure, a skipped one is skipped; nothing else is
    claimed."""
    names = names_of([check.classifier for check in checks])
    has_several = len(names) > 1
    outcomes = Counter(check.outcome for check in checks)
    totals = {
        "name": _text(suite),
        "tests": str(len(checks)),
        "failures": str(outcomes["failed"]),
        "errors": "0",
        "skipped": str(outcomes["skipped"]),
    }
    root = ET.Element("testsuites", totals)
    suite_element = ET.SubElement(root, "testsuite", {**totals, "time": "0"})
    properties_element = ET.SubElement(suite_element, "properties")
    for name, value in properties.items():
        ET.SubElement(properties_element, "property", {"name": _text(name), "value": _text(value)})
    for check in checks:
        name = f"{check.cell} ({names[check.classifier]})" if has_several else check.cell
        case = ET.SubElement(
            suite_element, "testcase", {"classname": _text(check.gate), "name": _text(name), "time": "0"}
        )
        if check.outcome == "failed":
            failure = ET.SubElement(case, "failure", {"message": _text(check.message), "type": "gate"})
            failure.text = _text(f"{names[check.classifier]}: {check.evidence}")
        elif check.outcome == "skipped":
            ET.SubElement(case, "skipped", {"message": _text(check.message)})
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", clean(text))
