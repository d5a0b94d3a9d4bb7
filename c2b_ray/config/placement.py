"""A placement file: how many processes run each stage of an audit, and the resources of each.

It knows fields and their limits, not the cluster's resources: `engine.placement` chooses what a file omits. A
placement does not change which images an audit classifies, so it is not part of the run's id. `precision`, `decode` and
`compile` change answers by rounding: with them a model has a different revision, under which it answers again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from c2b_ray.config.named import StrictModel
from c2b_ray.config.reading import first_problem
from c2b_ray.errors import ConfigError
from c2b_ray.storage.manifest import FileOrFields, read_yaml

Stage = Literal["fetch", "generate", "verify", "classify", "embed", "search", "shards", "measure"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Decoder = Literal["cpu", "gpu"]

DEPLOYMENTS = next(
    (parent / "deployments" for parent in Path(__file__).parents[1:3] if (parent / "deployments").is_dir()),
    Path(__file__).parents[2] / "deployments",
)
"""The folder within the package if it was installed from a wheel, else within the checkout."""

_WORD = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_LABEL = re.compile(rf"(?:[a-zA-Z0-9.-]{{1,253}}/)?{_WORD}")
_SELECTOR = re.compile(rf"!?{_WORD}|!?in\({_WORD}(?:, ?{_WORD})*\)")


@dataclass(frozen=True)
class Computing:
    """How the torch models of a stage compute. None leaves it to the model's spec, then to the default."""

    precision: Precision | None = None
    decode: Decoder | None = None
    compile: bool | None = None

    def over(self, other: Computing) -> Computing:
        """Returns this, with the fields of `other` where it says nothing."""
        return Computing(
            self.precision or other.precision,
            self.decode or other.decode,
            other.compile if self.compile is None else self.compile,
        )

    def contradicts(self, other: Computing) -> str | None:
        """Returns the first field in which a model that computes like `other` is not what this asks for; None where
        there is none. A model whose `decode` or `compile` is left open decodes on a CPU and is not compiled."""
        other_or_default = other.over(Computing(decode="cpu", compile=False))
        for name, value in vars(self).items():
            if value is not None and value != getattr(other_or_default, name):
                return name
        return None


UNSAID = Computing()


class StagePlacement(StrictModel):
    """The processes of one stage. An omitted field is chosen from the cluster's resources."""

    min_actors: int | None = Field(None, ge=1, le=100_000, description="Processes at the start of the stage.")
    max_actors: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="The most processes: the stage starts more while rows wait, and stops some when none do.",
    )
    cpus: float | None = Field(
        None, ge=0, le=1024, description="CPUs that Ray reserves for each process; reading and writing use the others."
    )
    gpus: float | None = Field(
        None, ge=0, le=64, description="GPUs of each process: 0, a share such as 0.25, or a whole number."
    )
    labels: dict[str, str] | None = Field(
        None,
        description="Labels of the nodes that processes may run on, in Ray's syntax: a value, !value, or in(a, b).",
    )
    batch: int | None = Field(None, ge=1, le=65_536, description="Rows in one batch of a model.")
    threads: int | None = Field(
        None, ge=1, le=256, description="Batches that one process works on at the same time, if its model allows it."
    )
    decoders: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="Processes that read, decode and resize images for those of the model; 0: these do it themselves.",
    )
    precision: Precision | None = Field(None, description="The number format in which a torch model computes.")
    decode: Decoder | None = Field(
        None,
        description="What decodes and resizes JPEGs for a torch model (classify, embed): cpu, with Pillow's pixels, or "
        "the model's gpu, with pixels that differ a little from them.",
    )
    compile: bool | None = Field(
        None,
        description="Whether a torch model is compiled (classify, embed): a minute or more at the start, and more "
        "images a second after it.",
    )

    @property
    def computing(self) -> Computing:
        return Computing(self.precision, self.decode, self.compile)

    @field_validator("gpus")
    @classmethod
    def _share_or_whole(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise ValueError(f"{gpus:g} is neither a share of one GPU nor a whole number of them")
        return gpus

    @field_validator("labels")
    @classmethod
    def _labels_of_ray(cls, labels: dict[str, str] | None) -> dict[str, str] | None:
        for name, value in (labels or {}).items():
            if not _LABEL.fullmatch(name):
                raise ValueError(f"{name[:100]!r} is not a name of a node label: letters, digits, '-', '_', '.'")
            if not _SELECTOR.fullmatch(value):
                raise ValueError(f"{name}: {value[:100]!r} is not a selector of nodes; write value, !value or in(a, b)")
        return labels

    @model_validator(mode="after")
    def _from_min_to_max(self) -> StagePlacement:
        if self.min_actors is not None and self.max_actors is not None and self.min_actors > self.max_actors:
            raise ValueError(f"min_actors {self.min_actors} is more than max_actors {self.max_actors}")
        return self

    @model_validator(mode="after")
    def _decodes_on_a_gpu(self) -> StagePlacement:
        if self.decode == "gpu" and self.gpus == 0:
            raise ValueError("decode: gpu needs a GPU, but gpus is 0; write decode: cpu, or give the stage GPUs")
        return self


class Stages(StrictModel):
    fetch: StagePlacement = StagePlacement()
    generate: StagePlacement = StagePlacement()
    verify: StagePlacement = StagePlacement()
    classify: StagePlacement = StagePlacement()
    embed: StagePlacement = StagePlacement()
    search: StagePlacement = StagePlacement()
    shards: StagePlacement = StagePlacement()
    measure: StagePlacement = StagePlacement()

    @model_validator(mode="after")
    def _only_where_torch_sees_images(self) -> Stages:
        for stage in get_args(Stage):
            section: StagePlacement = getattr(self, stage)
            for name in ("decode", "compile"):
                if stage not in ("classify", "embed") and getattr(section, name) is not None:
                    raise ValueError(f"{stage}.{name}: only the stages classify and embed have it")
        return self


class PlacementConfig(StrictModel):
    """The placement of an audit's work."""

    stages: Stages = Field(Stages(), description="The processes of each stage.")
    serve: str | None = Field(
        None,
        description="A Serve config, relative to this file, whose placement applies to the apps that `--via serve` "
        "starts.",
    )

    _file: str | None = PrivateAttr(None)

    @property
    def file(self) -> str | None:
        """The placement's file, for error messages."""
        return self._file

    def stage(self, name: Stage) -> StagePlacement:
        section: StagePlacement = getattr(self.stages, name)
        return section


def read_placement(source: FileOrFields | PlacementConfig | None) -> PlacementConfig:
    """Returns a placement from a YAML file, a mapping of its fields, or a config; None: all defaults.

    `laptop`, `one-gpu` and `cluster` are files that come with the package. The path of the Serve config becomes
    absolute, relative to the file. Raises ConfigError, which names file and field.
    """
    if isinstance(source, PlacementConfig):
        return source
    if source is None or isinstance(source, dict):
        return _located(_validated(source or {}, None), Path.cwd(), None)
    if not isinstance(source, str | Path):
        problem = f"expected a placement file's path or a mapping of its fields, got a {type(source).__name__}"
        raise ConfigError("placement", problem)
    shipped = DEPLOYMENTS / "placement" / f"{source}.yaml"
    if Path(source).suffix == "" and shipped.is_file() and not Path(source).exists():
        source = shipped
    data = read_yaml(source)
    if not isinstance(data, dict):
        problem = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError("", f"expected a mapping with `stages` or `serve`, got {problem}", location=str(source))
    return _located(_validated(data, str(source)), Path(source).parent, str(source))


def _validated(data: dict[str, Any], file: str | None) -> PlacementConfig:
    try:
        config = PlacementConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, PlacementConfig) from error
    config._file = file
    return config


def _located(config: PlacementConfig, base: Path, file: str | None) -> PlacementConfig:
    if config.serve is None:
        return config
    path = (base / Path(config.serve).expanduser()).resolve()
    if not path.is_file():
        raise ConfigError("serve", f"{path}: no such Serve config; deployments/ has some", location=file)
    return config.model_copy(update={"serve": str(path)})
