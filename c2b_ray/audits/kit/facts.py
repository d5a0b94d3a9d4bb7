"""A model's settings and where each was read: noted in a run, and warned of where nothing states them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from c2b_ray.audits.kit.events import Steps
from c2b_ray.roles import Description, ModelFact


def model_row(spec: str, known: Description) -> dict[str, Any]:
    """Returns the manifest's entry of a model: its spec and revision, and its settings where it tells them."""
    facts = [asdict(fact) for fact in known.facts]
    return {"spec": spec, "revision": known.revision, **({"facts": facts} if facts else {})}


def warn_of_assumptions(steps: Steps, name: str, known: Description) -> None:
    """Sends a warning for each setting that no file of a model states. `name`: of the model, for people."""
    for fact in known.facts:
        if fact.assumed:
            steps.warn(assumption(name, fact))


def fact_line(fact: ModelFact) -> str:
    """Returns a setting, where it was read, and for an assumed one the option that states it."""
    if not fact.assumed:
        return f"{fact.name}: {fact.value} ({fact.source})"
    stated = f"; state it with {fact.option}= in the spec" if fact.option else ""
    return f"{fact.name}: {fact.value}, which is ASSUMED ({fact.source}){stated}"


def assumption(name: str, fact: ModelFact) -> str:
    stated = f"; `{fact.option}=` in its spec states it" if fact.option else ""
    return f"{name}: {fact.name} is assumed to be {fact.value} ({fact.source}){stated}"
