"""The state that every route needs: config, ledger, cached keys, signer, watch."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from prometheus_client import CollectorRegistry

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.api.attempts import WrongKeys
from c2b_ray.endpoint.api.pagination import Signer
from c2b_ray.endpoint.api.places import Places
from c2b_ray.endpoint.api.remembered import Remembered
from c2b_ray.endpoint.api.watch import Watch
from c2b_ray.endpoint.ledger.buckets import Throttle
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.keys import KeyRing
from c2b_ray.endpoint.operate.signatures import UrlSigner


@dataclass(frozen=True)
class Context:
    """The state of one process of the API. `config.storage_root` contains `tenants/<id>/runs/<job id>`."""

    config: EndpointConfig
    db: Database
    keys: KeyRing
    throttle: Throttle
    wrong_keys: WrongKeys
    remembered: Remembered
    signer: Signer
    links: UrlSigner
    watch: Watch
    places: Places
    metrics: CollectorRegistry

    def tenant_root(self, tenant_id: str) -> str:
        return f"{self.config.storage_root.rstrip('/')}/tenants/{tenant_id}"

    def run_path(self, tenant_id: str, job_id: str) -> str:
        return f"{self.tenant_root(tenant_id)}/runs/{job_id}"


def context_of(request: Request) -> Context:
    context: Context = request.scope["app"].state.context
    return context
