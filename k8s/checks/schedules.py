"""Schedules as Kubernetes and KubeRay read them: five fields, or a word such as @daily (Go's robfig/cron, standard)."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),  # 0 is Sunday, and 7 is nothing
)
_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every (\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
_TERM = re.compile(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?")


def faults(schedule: str, zone: str | None) -> Iterator[str]:
    """What is wrong with a schedule and its time zone."""
    if "TZ" in schedule:
        yield "the schedule names a time zone; it belongs in timeZone"
    elif schedule.startswith("@"):
        if schedule not in _WORDS and not _EVERY.fullmatch(schedule):
            yield f"the schedule {schedule!r} is none of {', '.join(_WORDS)}"
    elif len(fields := schedule.split()) != len(_FIELDS):
        yield f"the schedule {schedule!r} is not five fields of cron"
    else:
        for text, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
            if not all(_is_term(term, low, high, names) for term in text.split(",")):
                yield f"the schedule {schedule!r}: {text!r} is no {name} from {low} to {high}"
    known = zoneinfo.available_timezones()
    if zone is not None and known and zone not in known:
        yield f"timeZone {zone!r} is no zone such as Etc/UTC or Europe/Berlin"


def _is_term(term: str, low: int, high: int, names: dict[str, int]) -> bool:
    """A number or a name, a range of them, or all; each with a step, if any."""
    if (match := _TERM.fullmatch(term)) is None:
        return False
    try:
        ends = [names[end.upper()] if end.upper() in names else int(end) for end in match.groups()[:2] if end]
    except ValueError:
        return False
    return all(low <= end <= high for end in ends) and ends == sorted(ends)
