"""Applies the policy in the job's process: checks the config again, checks its files, and downloads those of a store.

The policy is in the process's environment (`isolation`); the tenant's root is the folder that contains its runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.endpoint import Policy
from c2b_ray.config.named import Names
from c2b_ray.endpoint.kinds import kind_named
from c2b_ray.endpoint.policy import fetched
from c2b_ray.endpoint.policy.archives import follow_storage
from c2b_ray.endpoint.policy.contents import check_contents
from c2b_ray.endpoint.policy.isolation import POLICY_VARIABLE
from c2b_ray.endpoint.policy.paths import STORE, Tenancy
from c2b_ray.endpoint.policy.specs import SPECS, check_again, paths_of, relocated
from c2b_ray.errors import ConfigError
from c2b_ray.storage import files
from c2b_ray.storage.run import MANIFEST

_FETCHED = (Names.HIERARCHY, Names.LABEL_MAP, *(names for names in SPECS if names is not Names.INDEX))
"""Names of files that are read locally; tables, indexes and runs are read directly from stores."""


def prepared(kind: str, resolved: Mapping[str, Any], tenant_root: str) -> dict[str, Any]:
    """Returns the config that the job runs with. ConfigError names a field that by now names something the tenant may
    not use."""
    tenancy = Tenancy(tenant_root, policy_of_environment())
    model = kind_named(kind).config_class
    check_again(resolved, model, tenancy)
    named_paths = paths_of(resolved, model, tenancy)
    for names, _, path in named_paths:
        if names is Names.RUN:
            follow_storage(path, tenant_root)
        if names is Names.RUN and kind == "question" and not tenancy.is_local:
            fetched.fetch_again(files.read_bytes(f"{path}/{MANIFEST}").decode(), tenant_root)
    check_contents(named_paths, resolved, tenancy)
    if tenancy.is_local and not any(path.startswith(STORE) for _, _, path in named_paths):
        return dict(resolved)
    return relocated(resolved, model, tenancy, _fetched)


def policy_of_environment() -> Policy:
    """Returns the endpoint's policy; in a process started without one, the default, which allows no URL and no
    store."""
    text = os.environ.get(POLICY_VARIABLE)
    try:
        return Policy() if text is None else Policy.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError("", f"{POLICY_VARIABLE} is not a valid policy: {error.errors()[0]['msg']}") from error


def _fetched(names: Names, path: str) -> str:
    """Returns the path of a local copy of the file at `path`; the path itself if no copy is needed."""
    return fetched.fetch(path) if names in _FETCHED and path.startswith(STORE) else path
