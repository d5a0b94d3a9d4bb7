"""Makes tonight's RayJob of the suspended one that is its pattern, through Kubernetes' API with the pod's own account.

    python create_rayjob.py PATTERN

The job is named after the pattern and the day, so a second call on one day changes nothing.
"""

from __future__ import annotations

import os
import ssl
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
QUEUE = "kueue.x-k8s.io/queue-name"


def tonights(pattern: dict[str, Any], day: date, queue: str | None) -> dict[str, Any]:
    """The RayJob to create: the pattern's spec with its DATE replaced, not suspended, unless a queue will start it."""
    name = f"{pattern['metadata']['name']}-{day:%Y%m%d}"
    labels = {**pattern["metadata"].get("labels", {}), **({QUEUE: queue} if queue else {})}
    entrypoint = pattern["spec"]["entrypoint"].replace("DATE", f"{day:%Y-%m-%d}")
    return {
        "apiVersion": pattern["apiVersion"],
        "kind": pattern["kind"],
        "metadata": {"name": name, "namespace": pattern["metadata"]["namespace"], "labels": labels},
        # Kueue starts what waits in its queue; without it nobody would.
        "spec": {**pattern["spec"], "entrypoint": entrypoint, "suspend": queue is not None},
    }


def main() -> int:
    namespace = (ACCOUNT / "namespace").read_text().strip()
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT_HTTPS"]
    jobs = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}"}
    authority = f"[{host}]" if ":" in host else host
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with httpx.Client(base_url=f"https://{authority}:{port}", headers=headers, verify=trust, timeout=30) as api:
        pattern = api.get(f"{jobs}/{sys.argv[1]}").raise_for_status().json()
        job = tonights(pattern, datetime.now(UTC).date(), os.environ.get("C2B_QUEUE"))
        answer = api.post(jobs, json=job)
    if answer.status_code == httpx.codes.CONFLICT:
        print(f"{job['metadata']['name']} is there already")
        return 0
    answer.raise_for_status()
    print(f"created {job['metadata']['name']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
