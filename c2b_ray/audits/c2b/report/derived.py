"""What the values of derived attributes are, in words: "Here dark means: mean luma (0 to 255) below 61."

Reads the manifest (`audits.c2b.hypotheses.derived.Derived.record`), any part of which may be absent. Knows nothing of
scores or pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.method import mapping
from c2b_ray.report.redact import clean

ORIGINS = {
    "property": "measured on the images",
    "number": "cut from columns of numbers",
    "date": "cut from columns of dates",
    "read": "read off the images by a model",
    "word": "words of captions, found on the half of the images that is not tested",
    "slice": "clusters of embeddings, found on the half of the images that is not tested",
}


class DerivedValues:
    """The derived attributes of a run, by its manifest."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._attributes = {
            clean(str(attribute.get("attribute"))): attribute
            for attribute in manifest.get("derived") or []
            if isinstance(attribute, Mapping)
        }

    def range_of(self, target_class: str, attribute: str, value: str) -> str:
        """Returns the range of a value, such as "below 61"; empty where it has none, or is called so."""
        ranges = mapping(self._attributes.get(attribute, {}).get("ranges"))
        of_class = mapping(ranges.get(target_class) or ranges.get(""))
        range_text = clean(str(of_class.get(value, "")))
        return "" if range_text == value else range_text

    def explained(self, target_class: str, attribute: str, value: str) -> str:
        """Returns a sentence that says what a value means; empty for an attribute that was not derived."""
        if attribute not in self._attributes:
            return ""
        measure = clean(str(self._attributes[attribute].get("measure", "")))
        range_text = self.range_of(target_class, attribute, value)
        return f"Here {value} means: {measure} {range_text}." if range_text else f"Here {attribute} is {measure}."

    def setting(self) -> str:
        """Returns which attributes were derived from what, in a line; empty where none was."""
        parts = []
        for origin, source in ORIGINS.items():
            names = [name for name, attribute in self._attributes.items() if attribute.get("origin") == origin]
            if names:
                parts.append(f"{words.listed(names)} ({source})")
        return "; ".join(parts)
