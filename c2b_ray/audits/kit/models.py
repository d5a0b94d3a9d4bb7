"""A model's settings and where each was read: noted in a run, and warned of where nothing states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.errors import InputError, RunError
from c2b_ray.models import catalog
from c2b_ray.roles import Description, ModelFact
from c2b_ray.storage.run import Run


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


# The models of a run: noted in its manifest when it begins, and compared with the notes when it resumes.


def language_model_row(models: Backend, spec: str) -> dict[str, str]:
    """Returns the manifest's entry of a language model."""
    return {"spec": spec, "revision": models.describe("language_model", spec).revision}


def note_models(run: Run, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Notes models by name: each with its spec and revision. Raises RunError where the run has noted another revision.

    Use it for models whose results a run writes once, or reads without asking which revision made them.
    """
    before = run.manifest.get("models") or {}
    for name, row in rows.items():
        _check(run, name, before.get(name), row["revision"])
    run.update({"models": rows})


def check_language_model(run: Run, name: str, spec: str) -> None:
    """Raises RunError where the files of a language model, if they are on this machine, are not those that the run
    noted under `name`. No model is loaded or called."""
    try:
        known = catalog.describe("language_model", spec)
    except InputError:  # its files are elsewhere
        return
    if known is not None:
        _check(run, name, (run.manifest.get("models") or {}).get(name), known.revision)


def _check(run: Run, name: str, noted: Mapping[str, str] | None, revision: str) -> None:
    then = (noted or {}).get("revision")
    if then is not None and then != revision:
        raise RunError(
            f"{run.path} was begun with another {name}: its revision was {then}, and is {revision} now; give another "
            "--out, or put the former files (and precision) back",
            run=run.path,
        )
