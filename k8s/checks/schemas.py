"""Objects against schemas: Kubernetes' own kinds by kubernetes-validate, KubeRay's by the OpenAPI schemas and CEL rules
of its resource definitions. Unknown fields count as errors, where an API server would drop them in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import jsonschema
import kubernetes_validate
import yaml

from .manifests import Manifest, Violation, subject
from .render import LOADER

KUBERNETES = "1.34.0"
GROUP = "ray.io/"
_MARKS = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")


@cache
def definitions(folder: Path) -> Mapping[tuple[str, str], Manifest]:
    """Schemas of KubeRay's kinds by apiVersion and kind, from the resource definitions in a folder."""
    found = {}
    for file in sorted(folder.glob("ray.io_*.yaml")):
        spec = yaml.load(file.read_text(encoding="utf-8"), LOADER)["spec"]  # noqa: S506 — the safe loader in C
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            found[key] = version["schema"]["openAPIV3Schema"]
    return found


def core(manifest: Manifest) -> Iterator[Violation]:
    """Kubernetes' own kinds."""
    if manifest.get("apiVersion", "").startswith(GROUP):
        return
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield Violation("core-schema", subject(manifest), f"{_path(error.path)}: {error.message}"[:500])
    except kubernetes_validate.SchemaNotFoundError:
        if not _is_of_others(manifest["apiVersion"]):
            yield Violation("core-schema", subject(manifest), f"{manifest.get('apiVersion')} has no such kind")


def _is_of_others(version: str) -> bool:
    """Whether someone else's resource definition says what it looks like: an ExternalSecret, a ServiceMonitor."""
    group = version.rpartition("/")[0]
    return "." in group and (not group.endswith(".k8s.io") or group == "gateway.networking.k8s.io")


def custom(manifest: Manifest, folder: Path, old: Manifest | None = None) -> Iterator[Violation]:
    """KubeRay's kinds; `old`: the object that this one replaces, for rules about changes."""
    if not manifest.get("apiVersion", "").startswith(GROUP):
        return
    key = (manifest["apiVersion"], manifest["kind"])
    schema = definitions(folder).get(key)
    if schema is None:
        yield Violation("schema", subject(manifest), f"KubeRay has no {key[0]} {key[1]}")
        return
    for error in _validator(folder, key).iter_errors(manifest):
        yield Violation("schema", subject(manifest), f"{_path(error.path)}: {error.message}"[:500])
    for path, message in _broken(schema, manifest, old, ""):
        yield Violation("cel", subject(manifest), f"{path.lstrip('.')}: {message}")


@cache
def _validator(folder: Path, key: tuple[str, str]) -> jsonschema.Draft202012Validator:
    schema = _closed(definitions(folder)[key])
    # The server checks these two itself; the definition says no more than that they are objects.
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(schema)


def _closed(schema: Any) -> Any:
    """The schema in JSON Schema's words: unknown fields are refused, and a quantity may be a number or a text."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        closed["properties"] = {name: _closed(value) for name, value in schema["properties"].items()}
        if not schema.get(_MARKS[0]) and "additionalProperties" not in schema:
            closed["additionalProperties"] = False
    if schema.get("nullable") and "type" in schema:
        closed["type"] = [schema["type"], "null"]
    return closed


def _broken(schema: Any, value: Any, old: Any, path: str) -> Iterator[tuple[str, str]]:
    """Where a CEL rule of the schema does not hold. A rule with `oldSelf` is about a change."""
    for rule in schema.get("x-kubernetes-validations", []):
        changes = "oldSelf" in rule["rule"]
        if changes and old is None:
            continue
        bound = {"self": celpy.json_to_cel(value), **({"oldSelf": celpy.json_to_cel(old)} if changes else {})}
        if not _program(rule["rule"]).evaluate(bound):
            yield path, rule.get("message", rule["rule"])
    if isinstance(value, dict):
        for name, part in value.items():
            within = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if isinstance(within, dict):
                yield from _broken(within, part, old.get(name) if isinstance(old, dict) else None, f"{path}.{name}")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, part in enumerate(value):
            yield from _broken(schema["items"], part, None, f"{path}[{index}]")


@cache
def _program(rule: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


def _path(path: Any) -> str:
    return ".".join(map(str, path)) or "the object"
