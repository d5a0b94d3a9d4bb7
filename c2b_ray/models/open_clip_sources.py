"""Where an `open_clip:` spec's files lie, and which variant of the architecture and which preprocessing they are of.

A file of weights says neither. What all weights that open_clip lists for its architecture agree on is assumed, and
named as an assumption; where they differ, the spec has to say (`quickgelu=`, `pretrained_cfg=`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import open_clip
from huggingface_hub import snapshot_download
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import merge_preprocess_dict

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import numbers, truth
from c2b_ray.roles import ModelFact

VARIANT = ("quickgelu", "pretrained_cfg")
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")
CONFIG = "open_clip_config.json"
FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
_TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model", "added_tokens.json")
_CHOICES = {"interpolation": ("bicubic", "bilinear"), "resize_mode": ("shortest", "longest", "squash")}


@dataclass(frozen=True)
class Origin:
    """Where a setting was read; `assumed` where no file states it, and the `option` that does."""

    source: str
    assumed: bool = False
    option: str = ""

    def fact(self, name: str, value: str) -> ModelFact:
        return ModelFact(name, value, self.source, self.assumed, self.option)


@dataclass(frozen=True)
class Sources:
    """The sources of a model.

    `name` and `arguments` of open_clip's constructor; the `files` that the revision depends on (weights first); the
    model's `config`; `published`: whether open_clip lists these weights, and converts them as it likes; `activation`
    and `preprocessing`: where these were read, the latter by key; `variant`: what a revision depends on beside them.
    """

    name: str
    arguments: dict[str, Any]
    files: list[Path]
    config: dict[str, Any]
    published: bool
    activation: Origin
    preprocessing: dict[str, Origin] = field(default_factory=dict)
    variant: tuple[str, ...] = ()

    @property
    def quick_gelu(self) -> bool:
        return bool(self.arguments.get("force_quick_gelu") or self.config.get("quick_gelu"))


def sources(spec: Spec) -> Sources:
    """Returns the sources of an `open_clip:` spec. Raises SpecError for wrong names and open questions, WeightsError
    for files that cannot be used."""
    preprocessing, origins = _stated(spec)
    if spec.name.startswith(("local-dir:", "hf-hub:")):
        for option in ("weights", *VARIANT):
            if option in spec.options:
                brings = "its own weights" if option == "weights" else f"its own {CONFIG}"
                raise SpecError(f"{spec.text}: it brings {brings}, {option}= does not go with it")
        local = spec.name.startswith("local-dir:")
        directory = Path(spec.name.removeprefix("local-dir:")) if local else _downloaded(spec)
        return _of_directory(spec, directory, preprocessing, origins)
    name, _, tag = spec.name.partition("/")
    if name not in open_clip.list_models():
        raise SpecError(f"{spec.text}: open_clip has no model {name!r}; {nearest(name, open_clip.list_models())}")
    if "weights" in spec.options:
        return _of_file(spec, name, tag, preprocessing, origins)
    for option in VARIANT:
        if option in spec.options:
            raise SpecError(f"{spec.text}: {option}= goes with weights=FILE; published weights have their own settings")
    file, config = _published(spec, name, tag)
    origin = Origin(f"open_clip's settings of {name}/{tag}")
    # open_clip only warns where a tag was trained with QuickGELU.
    arguments = _arguments(file, bool(config.get("quick_gelu")), {**merge_preprocess_dict({}, config), **preprocessing})
    read_from = dict.fromkeys(PREPROCESSING, origin) | origins
    return Sources(name, arguments, [file], _architecture(name), True, origin, read_from)


def _architecture(name: str) -> dict[str, Any]:
    return dict(open_clip.get_model_config(name))


def _arguments(file: Path, quick_gelu: bool, preprocessing: dict[str, Any]) -> dict[str, Any]:
    return {"pretrained": str(file), "force_quick_gelu": quick_gelu, "force_preprocess_cfg": preprocessing}


def _stated(spec: Spec) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Returns the preprocessing that the spec's options state, and that they do."""
    preprocessing: dict[str, Any] = {name: numbers(spec, name) for name in ("mean", "std")}
    for name, choices in _CHOICES.items():
        preprocessing[name] = spec.options.get(name)
        if preprocessing[name] not in (None, *choices):
            raise SpecError(f"{spec.text}: {name}={preprocessing[name]!r} is none of {', '.join(choices)}")
    preprocessing = {name: tuple(v) if isinstance(v, list) else v for name, v in preprocessing.items() if v is not None}
    return preprocessing, {name: Origin(f"?{name}={spec.options[name]}") for name in preprocessing}


def _of_file(spec: Spec, name: str, tag: str, given: dict[str, Any], origins: dict[str, Origin]) -> Sources:
    """Returns the sources of weights of one's own for an architecture that open_clip lists."""
    file, config = weights.checked(spec.options["weights"]), _architecture(name)
    tags = open_clip.list_pretrained_tags_by_model(name)
    tag = spec.options.get("pretrained_cfg") or tag
    if tag and tag not in tags:
        raise SpecError(f"{spec.text}: open_clip lists no weights {tag!r} for {name}; {nearest(tag, tags)}")
    settings = {t: get_pretrained_cfg(name, t) for t in ([tag] if tag else tags)}
    quick, activation = _activation(spec, name, config, settings, bool(tag))
    preprocessing, read_from = _preprocessing(spec, name, settings, bool(tag), {*given})
    variant = ("quick_gelu",) if quick and not config.get("quick_gelu") else ()
    arguments = _arguments(file, quick, {**preprocessing, **given})
    return Sources(name, arguments, [file], config, False, activation, read_from | origins, variant)


def _activation(
    spec: Spec, name: str, config: dict[str, Any], configs: dict[str, Any], is_named: bool
) -> tuple[bool, Origin]:
    """Returns whether weights of one's own are of the variant with QuickGELU, and where that was read."""
    if config.get("quick_gelu"):
        if "quickgelu" in spec.options and not truth(spec, "quickgelu", True):
            raise SpecError(f"{spec.text}: {name} is the variant with QuickGELU; name the one without it")
        return True, Origin(f"open_clip's config of {name}")
    if "quickgelu" in spec.options:
        return truth(spec, "quickgelu", False), Origin(f"?quickgelu={spec.options['quickgelu']}")
    quick = [tag for tag, settings in configs.items() if settings.get("quick_gelu")]
    without_quick = [tag for tag in configs if tag not in quick]
    if quick and without_quick:
        raise SpecError(
            f"{spec.text}: of the published weights of {name} some have QuickGELU ({_some(quick)}), others GELU "
            f"({_some(without_quick)}), and a file does not say; write quickgelu=true or quickgelu=false, or "
            "pretrained_cfg=TAG of the weights that yours began from"
        )
    return bool(quick), _origin(name, configs, is_named, "quickgelu")


def _preprocessing(
    spec: Spec, name: str, configs: dict[str, Any], is_named: bool, given: set[str]
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Returns the preprocessing of weights of one's own, and where it was read, by key."""
    settings = {tag: merge_preprocess_dict({}, config) for tag, config in configs.items()}
    agreed: dict[str, Any] = {}
    for key in sorted({key for values_of_tag in settings.values() for key in values_of_tag} - given):
        values = {str(values_of_tag.get(key)): tag for tag, values_of_tag in settings.items()}
        if len(values) > 1:
            listed_values = ", ".join(f"{key} {value} ({tag})" for value, tag in values.items())
            raise SpecError(
                f"{spec.text}: the published weights of {name} prepare pictures differently: {listed_values}; write "
                f"pretrained_cfg=TAG of the weights that yours began from, or {key}="
            )
        agreed[key] = next(iter(settings.values()))[key]
    option = "pretrained_cfg" if configs else ""
    return agreed, {key: _origin(name, configs, is_named, option or key) for key in PREPROCESSING}


def _origin(name: str, configs: dict[str, Any], is_named: bool, option: str) -> Origin:
    if is_named:
        return Origin(f"open_clip's settings of {name}/{next(iter(configs))}")
    if not configs:
        return Origin("open_clip's default: it lists no weights of this architecture", True, option)
    count = "the one set of" if len(configs) == 1 else f"all {len(configs)} sets of"
    return Origin(f"{count} published weights of {name}", True, option)


def _some(tags: Sequence[str]) -> str:
    return ", ".join(tags[:3]) + (", …" if len(tags) > 3 else "")


def _of_directory(spec: Spec, directory: Path, given: dict[str, Any], origins: dict[str, Origin]) -> Sources:
    config = directory / CONFIG
    if not config.is_file():
        raise SpecError(f"{spec.text}: {directory} holds no {CONFIG}")
    # Under any other name open_clip would read a pickle first, were one beside it.
    file = weights.checked(next((directory / f for f in FILES if (directory / f).is_file()), directory / FILES[0]))
    try:
        document = json.loads(config.read_text(encoding="utf-8"))
        model_config, preprocessing = dict(document["model_cfg"]), dict(document.get("preprocess_cfg") or {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{spec.text}: open_clip cannot build it from its config and weights: {error}") from error
    extra = sorted({path for pattern in _TOKENIZER for path in directory.glob(pattern) if path.is_file()})
    config_origin, default = Origin(CONFIG), f"open_clip's default: {CONFIG} states none"
    read_from = {
        key: config_origin if key in preprocessing else Origin(default, True, key) for key in PREPROCESSING
    } | origins
    arguments = {"force_preprocess_cfg": given} if given else {}
    return Sources(
        f"local-dir:{directory}", arguments, [file, config, *extra], model_config, False, config_origin, read_from
    )


def _published(spec: Spec, name: str, tag: str) -> tuple[Path, dict[str, Any]]:
    """Returns the safetensors file and the config of a tag in open_clip's list."""
    tags = open_clip.list_pretrained_tags_by_model(name)
    config = get_pretrained_cfg(name, tag)
    if not tag or not config:
        end = nearest(tag, tags) if tags else "open_clip lists none; give ?weights=PATH.safetensors"
        raise SpecError(f"{spec.text}: {f'no weights {tag!r}' if tag else 'expected ARCH/WEIGHTS'} for {name}; {end}")
    repository, _, filename = config.get("hf_hub", "").rpartition("/")
    if not repository:
        raise WeightsError(
            f"{spec.text}: published as a pickle alone; convert it with safetensors.torch.save_file and give "
            f"open_clip:{name}?weights=PATH.safetensors&pretrained_cfg={tag}"
        )
    filename = f"{filename.rpartition('.')[0]}.safetensors" if filename else FILES[0]
    return weights.checked(weights.from_hub(repository, filename, spec.text)), config


def _downloaded(spec: Spec) -> Path:
    repository, _, revision = spec.name.removeprefix("hf-hub:").partition("@")
    weights.from_hub(repository, FILES[0], spec.text, revision or None)
    config = weights.from_hub(repository, CONFIG, spec.text, revision or None)
    try:
        snapshot_download(repository, revision=revision or None, allow_patterns=["*.json", *_TOKENIZER])
    except OSError as error:
        raise SpecError(f"{spec.text}: the tokenizer of {repository} cannot be downloaded: {error}") from error
    return config.parent
