"""The file of a shared endpoint, with its section `policy`: what tenants may name, upload and reach."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from c2b_ray.config.named import StrictModel
from c2b_ray.config.reading import first_problem
from c2b_ray.errors import ConfigError
from c2b_ray.storage.manifest import FileOrFields, read_yaml

# The section `policy` of an endpoint's file: what tenants may name, upload and reach.


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


DATABASE_VARIABLE = "C2B_DATABASE_URL"
SECRET_VARIABLE = "C2B_ENDPOINT_SECRET"  # noqa: S105 — its name
LEDGER = "ledger.db"
"""The database in an endpoint's folder, unless another one is named."""


class Quotas(StrictModel):
    """The limits of one tenant. A tenant's own quotas replace these, field by field."""

    concurrent_jobs: int = Field(20, ge=0, description="The most jobs that wait or run at once.")
    images_per_day: int | None = Field(None, ge=0, description="The most images that models answer about, per UTC day.")
    model_seconds_per_day: dict[str, float] = Field(
        {},
        description="Model → the most seconds that it computes, per UTC day; '*' stands for every model that is not "
        "named.",
    )
    storage_bytes: int = Field(50 * GIB, ge=0, description="The most bytes of uploads and runs together.")
    requests_per_second: float = Field(50.0, gt=0, description="The most requests per second, on average.")
    burst: int = Field(100, ge=1, description="The most requests at once, before the average applies.")

    @field_validator("model_seconds_per_day")
    @classmethod
    def _seconds(cls, limits: dict[str, float]) -> dict[str, float]:
        for model, seconds in limits.items():
            if not seconds >= 0:
                raise ValueError(f"{model[:100]!r}: {seconds:g} is not a number of seconds")
        return limits


class Runners(StrictModel):
    """How jobs run."""

    slots: int = Field(1, ge=1, le=1024, description="The most jobs that one runner runs at once.")
    lease_seconds: float = Field(
        30.0, gt=0, le=3600, description="How long a runner keeps its job without a sign of life."
    )
    slice_seconds: float = Field(
        60.0,
        ge=0,
        description="Seconds that a job runs before it may have to yield to other tenants' jobs; fewer if a tenant "
        "has no job running.",
    )
    attempts: int = Field(
        5,
        ge=1,
        description="How often a job may lose its runner, or meet a temporary problem, without progress before it "
        "fails.",
    )
    poll_seconds: float = Field(0.5, gt=0, le=60, description="How often a free runner looks for a job.")
    spare: bool = Field(
        True, description="Whether a process with loaded libraries waits for the next job; it takes about 1 GiB."
    )


class Retention(StrictModel):
    """How long data of ended jobs are kept. Without a value they are kept until someone deletes them."""

    runs_days: float | None = Field(None, gt=0, description="Days after which runs of ended jobs are deleted.")
    uploads_days: float | None = Field(
        None, gt=0, description="Days after which an upload is deleted if no job named it in the meantime."
    )
    events_days: float = Field(30.0, gt=0, description="Days after which events of ended jobs are deleted.")
    idempotency_hours: float = Field(24.0, gt=0, description="Hours for which an Idempotency-Key is remembered.")


class EndpointConfig(StrictModel):
    """A shared endpoint."""

    folder: str = Field(
        "c2b-endpoint", description="The folder of the database and the storage, unless these are named."
    )
    database: str | None = Field(
        None,
        description=f"sqlite:///PATH or postgresql://…. Default: the variable {DATABASE_VARIABLE}, else SQLite in the "
        f"folder.",
    )
    storage: str | None = Field(
        None, description="A folder or s3:// URI for runs and uploads. Default: a subfolder of the folder."
    )
    listen: str = Field("127.0.0.1:8420", description="HOST:PORT of the API.")
    public_url: str | None = Field(
        None, description="The URL at which clients reach the API. Default: http:// and `listen`."
    )
    serve: str | None = Field(None, description="The address of a Ray cluster whose Serve apps hold the models.")
    via: Literal["auto", "here", "actors", "serve"] = Field("auto", description="Where the models of jobs run.")
    placement: str | None = Field(None, description="The placement file of all jobs.")
    quotas: Quotas = Field(Quotas(), description="The quotas of tenants that have none of their own.")
    policy: Policy = Field(Policy(), description="What a submitted audit may name.")
    runners: Runners = Field(Runners(), description="How jobs are run.")
    retention: Retention = Field(Retention(), description="How long the data of ended jobs are kept.")
    key_cache_seconds: float = Field(
        2.0, ge=0, le=60, description="How long a verified key is not checked again; a revoked key works for as long."
    )
    wrong_keys_per_minute: float = Field(
        30.0,
        gt=0,
        description="The most wrong keys per minute from one address, or with the same first letters, before the "
        "answer is 429.",
    )
    wrong_keys_at_once: int = Field(30, ge=1, description="The most wrong keys at once, before the average applies.")
    signed_url_seconds: float = Field(900.0, gt=0, description="How long a signed URL of an artifact works.")

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, listen: str) -> str:
        host, _, port = listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{listen[:100]!r} is not HOST:PORT, such as 127.0.0.1:8420")
        return listen

    @field_validator("public_url")
    @classmethod
    def _absolute_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError(f"{url[:100]!r} is not a URL that begins with http:// or https://")
        return None if url is None else url.rstrip("/")

    @field_validator("database")
    @classmethod
    def _known_database(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
            raise ValueError("expected sqlite:///PATH or postgresql://USER@HOST/NAME")
        return url

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def url(self) -> str:
        """The URL at which clients reach the API."""
        return self.public_url or f"http://{self.listen}"

    @property
    def database_url(self) -> str:
        """The file's database, else the environment's, else SQLite in the folder."""
        default = f"sqlite:///{Path(self.folder).absolute() / LEDGER}"
        return self.database or os.environ.get(DATABASE_VARIABLE) or default

    @property
    def storage_root(self) -> str:
        return self.storage or str(Path(self.folder).absolute() / "storage")


def read_endpoint(source: FileOrFields | EndpointConfig | None) -> EndpointConfig:
    """Returns an endpoint from a YAML file, its folder, a mapping of its fields, or a config.

    None is the endpoint of the working directory, if that is an endpoint's folder, or else of its `c2b-endpoint`.
    Relative paths become absolute, relative to the file. Raises ConfigError, which names file and field.
    """
    if isinstance(source, EndpointConfig):
        return source
    if isinstance(source, str | Path) and Path(source).is_dir():
        source = {"folder": str(source)}
    if source is None and Path(LEDGER).is_file() and not Path(EndpointConfig().folder).exists():
        source = {"folder": "."}
    if source is None or isinstance(source, dict):
        return _located(_validated(source or {}, None), Path.cwd())
    data = read_yaml(source)
    if not isinstance(data, dict):
        kind = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(
            "", f"expected a mapping of fields such as database and quotas, got {kind}", location=str(source)
        )
    return _located(_validated(data, str(source)), Path(source).absolute().parent)


def _validated(data: dict[str, Any], file: str | None) -> EndpointConfig:
    try:
        return EndpointConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, EndpointConfig) from error


def _located(config: EndpointConfig, base: Path) -> EndpointConfig:
    changes: dict[str, Any] = {"folder": str(base / Path(config.folder).expanduser())}
    if config.storage is not None and "://" not in config.storage:
        changes["storage"] = str(base / Path(config.storage).expanduser())
    if config.placement is not None and (base / config.placement).is_file():
        changes["placement"] = str(base / config.placement)
    if config.database is not None and config.database.startswith("sqlite:///"):
        changes["database"] = f"sqlite:///{base / config.database.removeprefix('sqlite:///')}"
    return config.model_copy(update=changes)
