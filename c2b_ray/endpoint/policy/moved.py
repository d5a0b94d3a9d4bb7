"""Lets runs go on, and be asked, after the endpoint's storage was moved, as by `c2b restore` into another folder.

The config of a run names the tenant's files by their absolute paths, and the run's id follows from its config. This
module puts the tenant's present folder into both. It knows the manifest of a run, and no ledger.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from c2b_ray.endpoint.policy.paths import DATA, RUNS, UPLOADS
from c2b_ray.filesystems.documents import parse_json
from c2b_ray.schemas import content_id
from c2b_ray.store import files
from c2b_ray.store.run import MANIFEST

_NAMING = ("config", "models")
"""The fields of a manifest that name files."""


def with_present_paths(value: Any, tenant_folder: str) -> Any:
    """Returns a JSON value in which paths below the tenant's folder in an earlier storage lead to the present one.

    A path may be a text of its own, or part of a spec such as `onnx:PATH?mean=0.5`. URLs stay as they are.
    """
    if isinstance(value, str):
        return _earlier(tenant_folder).sub(lambda found: _present(found[0], tenant_folder), value)
    if isinstance(value, dict):
        return {name: with_present_paths(item, tenant_folder) for name, item in value.items()}
    return [with_present_paths(item, tenant_folder) for item in value] if isinstance(value, list) else value


def follow_storage(run_path: str, tenant_folder: str) -> None:
    """Rewrites the manifest of a run of this tenant, if there is one and it names an earlier storage."""
    location = f"{run_path.rstrip('/')}/{MANIFEST}"
    if not files.exists(location):
        return
    try:
        manifest = parse_json(files.read_bytes(location))
    except ValueError:
        return  # whoever reads the run says what is wrong with it
    if not isinstance(manifest, dict) or not {"kind", "config"} <= manifest.keys():
        return
    present = {name: with_present_paths(manifest[name], tenant_folder) for name in _NAMING if name in manifest}
    if any(manifest[name] != value for name, value in present.items()):
        present["run_id"] = content_id(manifest["kind"], present["config"])
        files.write_bytes(location, json.dumps(manifest | present, indent=2, ensure_ascii=False).encode())


def _earlier(tenant_folder: str) -> re.Pattern[str]:
    tenant_id = re.escape(tenant_folder.rstrip("/").rpartition("/")[2])
    return re.compile(rf"(?:^|(?<=[:=,]))(?:s3:/)?/(?!/)[^?#]*?/tenants/{tenant_id}/(?=(?:{DATA}|{UPLOADS}|{RUNS})/)")


def _present(folder: str, tenant_folder: str) -> str:
    """Returns the tenant's present folder in place of `folder`, unless both are one, under two names."""
    same = os.path.realpath(folder) == os.path.realpath(tenant_folder)
    return folder if same else f"{tenant_folder.rstrip('/')}/"
