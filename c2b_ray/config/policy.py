"""The section `policy` of an endpoint's file: what tenants may name, upload and reach.

It knows fields and checks no request. By default a tenant may use shipped models, its uploads and data, and models of
the hub by name; no URLs and no stores.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from c2b_ray.config.strict import StrictModel

MIB, GIB = 2**20, 2**30
Role = Literal[
    "classifier",
    "language_model",
    "encoder",
    "image_generator",
    "latent_generator",
    "captioner",
    "group_guesser",
    "sentence_encoder",
    "index",
]
Schemes = Annotated[list[str], Field(max_length=64)]

SCHEMES: dict[Role, list[str]] = {
    "classifier": ["world", "onnx", "timm", "torchvision", "hf", "open_clip", "table", "http", "https"],
    "language_model": ["world", "hf", "vllm", "openai"],
    "encoder": ["world", "open_clip"],
    "image_generator": ["world", "diffusers"],
    "latent_generator": ["world", "diffusers", "vae", "gan", "style"],
    "captioner": ["world", "open_clip", "hf-vlm", "vllm", "openai"],
    "group_guesser": ["bert"],
    "sentence_encoder": ["sentence-transformers"],
    "index": ["faiss"],
}
_URL = re.compile(r"https?://(\*|(\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[1-9]\d{0,4})?(/[^\s?#]*)?")


class Weights(StrictModel):
    """Limits of an uploaded model: of the cost of reading it, not of its quality."""

    nodes: int = Field(
        200_000, ge=1, description="Nodes of an ONNX graph; the nodes of a function count wherever it is used."
    )
    depth: int = Field(16, ge=1, le=64, description="Levels of graphs within graphs.")
    tensors: int = Field(100_000, ge=1, description="Tensors of a file.")
    seconds: float = Field(60.0, gt=0, description="Seconds for checking a file.")
    memory_bytes: int = Field(8 * GIB, ge=256 * MIB, description="Address space of the process that checks it.")


class Archives(StrictModel):
    """Limits of an uploaded archive of images (zip or tar)."""

    members: int = Field(100_000, ge=1, description="Files in an archive.")
    total_bytes: int = Field(20 * GIB, ge=1, description="Bytes of its files, unpacked.")
    ratio: float = Field(100.0, ge=1, description="How many times larger a file may be than its packed bytes.")


class Policy(StrictModel):
    """What a submitted audit may name, and what may be uploaded."""

    schemes: dict[Role, Schemes] = Field(
        {}, description="Role → the schemes that its specs may have. A role that is not named has the default schemes."
    )
    urls: list[str] = Field(
        [],
        description="URLs of models; audits may use any path below them. https://host, https://host:8443/v1/, "
        "https://*.example.org, https://* (any public host). http: only for a host that is named.",
    )
    webhooks: list[str] = Field([], description="URLs that webhooks may be sent to, in the same form.")
    networks: list[str] = Field(
        [], description="Networks, besides the internet, in which listed hosts may have addresses, such as 10.2.0.0/16."
    )
    hub: list[str] = Field(["*"], description="Patterns of names on a hub of models, such as timm/*.")
    stores: list[str] = Field([], description="Prefixes s3://bucket/path/ whose objects every tenant may name.")
    local_models: bool = Field(
        True, description="Whether audits may read models from folders of the tenant's data, besides uploads."
    )
    keys: list[str] = Field(
        [],
        description="Environment variables that jobs receive, such as C2B_HTTP_KEY, for the listed services.",
    )
    require_isolation: bool = Field(
        False,
        description="Refuses to run uploaded weights if the kernel cannot cut their process off from the network. "
        "Otherwise they run, and the job's record says so.",
    )
    body_bytes: int = Field(4 * MIB, ge=1024, description="Bytes of a request's body, except uploads.")
    upload_bytes: int = Field(2 * GIB, ge=1024, description="Bytes of one uploaded file.")
    answer_bytes: int = Field(64 * MIB, ge=1024, description="Bytes of a service's answer.")
    answer_seconds: float = Field(
        120.0, gt=0, le=3600, description="Seconds of a request to a service, including its answer."
    )
    image_bytes: int = Field(32 * MIB, ge=1024, description="Bytes of one image.")
    image_pixels: int = Field(64_000_000, ge=1, description="Pixels of one image, according to its header.")
    image_frames: int = Field(1, ge=1, le=10_000, description="Frames of one image.")
    job_memory_bytes: int | None = Field(None, ge=GIB, description="Address space of a job's process.")
    job_file_bytes: int | None = Field(None, ge=MIB, description="Bytes of one file that a job's process writes.")
    job_reads: list[str] = Field(
        default_factory=list,
        description="Folders that a job's process may read, besides its tenant's data, libraries and model caches, if "
        "the kernel has Landlock; `/` confines no job.",
    )
    weights: Weights = Field(Weights(), description="Limits of an uploaded model.")
    archives: Archives = Field(Archives(), description="Limits of an uploaded archive of images.")

    @field_validator("urls", "webhooks")
    @classmethod
    def _listed_urls(cls, urls: list[str]) -> list[str]:
        for url in urls:
            match = _URL.fullmatch(url)
            if match is None:
                raise ValueError(
                    f"{url[:100]!r}: expected https://host[:port][/path], https://*.example.org or https://*"
                )
            if url.startswith("http:") and match[1].startswith("*"):
                raise ValueError(f"{url[:100]!r}: http: is allowed only for a host that is named")
        return urls

    @field_validator("networks")
    @classmethod
    def _networks(cls, networks: list[str]) -> list[str]:
        return [str(ipaddress.ip_network(network)) for network in networks]

    @field_validator("stores")
    @classmethod
    def _prefixes(cls, stores: list[str]) -> list[str]:
        for prefix in stores:
            if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+/([\w.=-]+/)*", prefix) or "/../" in prefix:
                raise ValueError(f"{prefix[:100]!r}: expected a prefix s3://bucket/path/ that ends in a slash")
        return stores

    @field_validator("keys")
    @classmethod
    def _variables(cls, keys: list[str]) -> list[str]:
        for name in keys:
            if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
                raise ValueError(f"{name[:100]!r} is not a name of an environment variable")
        return keys

    def schemes_of(self, role: Role) -> list[str]:
        return self.schemes.get(role, SCHEMES[role])
