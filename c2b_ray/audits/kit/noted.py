"""The models of a run: noted in its manifest when it begins, and compared with the notes when it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.errors import InputError, RunError
from c2b_ray.models import catalog
from c2b_ray.store.run import Run


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
