"""Configs of `c2b audit` for tests of what is said about a run."""

from __future__ import annotations

from typing import Any

from c2b_ray.config import AuditConfig

RETRIEVED = {"source": "retrieve", "index": "photos.index"}
LABELLED = {"source": "labelled", "table": "photos.csv"}


def audit_config(images: dict[str, str] = RETRIEVED, **fields: Any) -> AuditConfig:
    needed = {"task": "recognise vehicles", "classes": ["bus", "car"], "classifier": "world:resnet-planted-3"}
    proposed = {"attributes": {"weather": ["fog", "snow"]}} if images is not LABELLED else {}
    return AuditConfig.model_validate({**needed, **proposed, "images": images, **fields})
