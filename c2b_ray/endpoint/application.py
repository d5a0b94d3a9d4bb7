"""The whole HTTP application of an endpoint: the API and the pages, on one port. It runs no job."""

from __future__ import annotations

from fastapi import FastAPI

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.api.app import create_app
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.web.mount import mount


def create_application(config: EndpointConfig, db: Database | None = None) -> FastAPI:
    """Creates the app of `create_app`, with the pages below /ui."""
    app = create_app(config, db)
    mount(app)
    return app
