"""What the names in a submitted config may be: paths and model specs, which are resolved or refused.

    data/photos/table.csv      below the tenant's folder `data`
    upload:<sha256>            a file that the tenant has uploaded
    run:<id>                   one of the tenant's runs
    s3://bucket/path           below a prefix that the policy lists
    timm:resnet50?weights=…    a model spec: by role, scheme and option

Nothing is expanded: neither `~` nor `$HOME` nor `%2e`. A scheme or option that is not in these tables is refused, also
an installed third party's, whatever the policy lists. A spec is parsed like in the catalogue, and rebuilt from its
checked parts. This module knows paths and links, not the contents of files, but for a run's manifest: after the storage
was moved, as by `c2b restore` into another folder, it leads its paths to the present one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, NoReturn
from urllib.parse import parse_qsl, quote

from c2b_ray.config.endpoint import Policy, Role
from c2b_ray.errors import ConfigError, SpecError, nearest
from c2b_ray.models.catalog import parse
from c2b_ray.models.url_guard import UrlPolicy, check_url
from c2b_ray.storage import files
from c2b_ray.storage.confined import LOCAL_DIR
from c2b_ray.storage.manifest import parse_json
from c2b_ray.storage.run import MANIFEST
from c2b_ray.tables import content_id
from c2b_ray.world import zoo

UPLOAD, RUN, STORE = "upload:", "run:", "s3://"
DATA, UPLOADS, RUNS = "data", "uploads", "runs"
SUFFIXES = {
    "onnx": ".onnx", "safetensors": ".safetensors", "image": "", "images": "", "table": ".parquet", "csv": ".csv",
    "text": ".txt",
}  # fmt: skip
"""Kind of an upload → the suffix of its file, by which loaders recognise the format; `images` is a folder."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_STEP = re.compile(r"[\w@+=,()\[\]-][\w .@+=,()\[\]-]{0,254}")
_OBJECT = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,62}/[\w.=+@, ()/-]+")
LONGEST = 1000
_EXPECTED = "expected a path below data/, such as data/photos.csv, upload:<sha256>, or an s3:// prefix that is listed"


@dataclass(frozen=True)
class Tenancy:
    """One tenant's part of the endpoint. `root`: its folder, local or s3://. `uploads`: the kind of each upload, by
    sha256."""

    root: str
    policy: Policy = field(default_factory=Policy)
    uploads: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root


def upload_path(root: str, sha256: str, kind: str) -> str:
    """Returns the path of an upload below a tenant's root."""
    return f"{root.rstrip('/')}/{UPLOADS}/{sha256}{SUFFIXES[kind]}"


def looks_like_path(text: str) -> bool:
    """Returns whether a name is meant as a path rather than as a model on a hub."""
    return text.startswith((f"{DATA}/", UPLOAD, RUN, STORE, "/", "./", "../", "~", "\\")) or "://" in text


def located(text: str, name: str, tenancy: Tenancy, kinds: tuple[str, ...] = ()) -> str:
    """Returns the path or URI that `text` in the field `name` means. Raises ConfigError if it is not allowed or not
    there.

    `kinds`: the kinds of uploads that the field accepts.
    """
    if len(text) > LONGEST or not text.isprintable():
        raise ConfigError(name, f"{text[:100]!a}: expected a path of at most {LONGEST} characters, all printable")
    if text.startswith(UPLOAD):
        return _upload_path(text, name, tenancy, kinds)
    if text.startswith(RUN):
        if "run" not in kinds:
            _refuse(name, text, "a run cannot be used here")
        if not _ID.fullmatch(text.removeprefix(RUN)):
            _refuse(name, text, "expected run: and the id of a finished audit")
        return _below(f"{tenancy.root.rstrip('/')}/{RUNS}/{text.removeprefix(RUN)}", RUNS, name, text, tenancy)
    if text.startswith(STORE):
        return _store_path(text, name, tenancy)
    steps = text.removesuffix("/").split("/")
    if steps[0] != DATA or len(steps) < 2:
        _refuse(name, text, _EXPECTED)
    for step in steps:
        if not _STEP.fullmatch(step) or step.endswith((" ", ".")):
            _refuse(
                name,
                text,
                f"{step[:60]!r} is not allowed in a path; use letters, digits and any of . _ - + = @ , ( ) [ ]",
            )
    return _below(f"{tenancy.root.rstrip('/')}/{'/'.join(steps)}", DATA, name, text, tenancy)


def verified(path: str, name: str, tenancy: Tenancy) -> str:
    """Checks a path that `located` returned again, before it is read: it must still lead to the tenant's files."""
    if path.startswith(STORE):
        root = tenancy.root.rstrip("/")
        is_in_tenant = (
            path.startswith(tuple(f"{root}/{part}/" for part in (DATA, UPLOADS, RUNS))) and not tenancy.is_local
        )
        return path if is_in_tenant and _is_plain(path) else _store_path(path, name, tenancy)
    for part in (DATA, UPLOADS, RUNS):
        if tenancy.is_local and is_inside(path, f"{tenancy.root.rstrip('/')}/{part}"):
            return path
    raise ConfigError(
        name, "the path no longer leads to this tenant's files; it changed after the config was submitted"
    )


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a local path is the folder or lies below it, after resolving all links."""
    if not os.path.isabs(path) or "\0" in path:
        return False
    base, real = os.path.realpath(folder), os.path.realpath(path)
    return real == base or real.startswith(f"{base}{os.sep}")


def _upload_path(text: str, name: str, tenancy: Tenancy, kinds: tuple[str, ...]) -> str:
    sha256 = text.removeprefix(UPLOAD)
    if not _SHA256.fullmatch(sha256):
        _refuse(name, text, "expected upload: and the 64 hexadecimal digits of its sha256, in lower case")
    kind = tenancy.uploads.get(sha256)
    if kind is None:
        _refuse(name, text, "there is no such upload; upload the file first")
    if kind not in kinds:
        expected = " or ".join(k for k in kinds if k != "run") or "a path below data/"
        _refuse(name, text, f"this upload is of the kind {kind}, expected {expected}")
    path = upload_path(tenancy.root, sha256, str(kind))
    return _below(path, UPLOADS, name, text, tenancy)


def _below(path: str, part: str, name: str, text: str, tenancy: Tenancy) -> str:
    """Returns the path with links resolved; it must not lead out of the tenant's folder `part`."""
    if not tenancy.is_local:
        return path
    if not is_inside(path, f"{tenancy.root.rstrip('/')}/{part}"):
        # The same message as for a missing file, so that it reveals nothing about files outside.
        _refuse(name, text, "no such file or folder of this tenant")
    if not os.path.exists(path):
        _refuse(name, text, "no such file or folder of this tenant")
    return os.path.realpath(path)


def _store_path(text: str, name: str, tenancy: Tenancy) -> str:
    if not _is_plain(text):
        _refuse(name, text, "expected s3://bucket/path, without '..', '//', keys or a query")
    if not any(text.startswith(prefix) for prefix in tenancy.policy.stores):
        _refuse(name, text, "is not below a prefix that this endpoint lists")
    return text


def _is_plain(uri: str) -> bool:
    steps = uri.removeprefix(STORE).rstrip("/").split("/")
    return bool(_OBJECT.fullmatch(uri)) and not any(step in ("", ".", "..") for step in steps)


def _refuse(name: str, text: str, problem: str) -> NoReturn:
    raise ConfigError(name, f"{text[:200]!r}: {problem}")


# What a submitted model spec may contain, by role, scheme and option.


Locate = Callable[[str, tuple[str, ...]], str]
"""Maps a name, and the kinds of uploads that fit, to a path; raises if the name is not allowed."""


class Part(Enum):
    """The type of a name or an option's value."""

    WORD = "letters, digits and any of . _ - +"
    NUMBERS = "numbers with commas between"
    DEVICE = "cpu, cuda or cuda:N"
    TEXT = "words that are shown to a model"
    LABELS = "names with commas between, or a file of names"
    FILE = "a file"
    LINKS = "none, or a file of links"
    TENSORS = "a safetensors file"
    WEIGHTS = "a safetensors file, or the name of published weights"
    GRAPH = "an ONNX file"
    TABLE = "a table"
    FOLDER = "a folder"
    MODEL = "a name on a hub of models, or a folder"
    LOCAL = "local-dir: and a folder"
    URL = "a URL"
    SERVED = "a URL and, after a #, a model's name"


@dataclass(frozen=True)
class Grammar:
    """What the specs of a scheme contain. `name`: the type of the model's name. `hub`: the prefix that a plain name
    gets before it is compared with the policy's hub names."""

    name: Part
    options: Mapping[str, Part]
    hub: str = ""


_RUNTIME = {"device": Part.DEVICE, "batch": Part.NUMBERS, "precision": Part.WORD}
_WEIGHTS_OPTIONS = {"weights": Part.WEIGHTS, "labels": Part.LABELS, **_RUNTIME}
_ZERO_SHOT = {"labels": Part.LABELS, "template": Part.TEXT, "temperature": Part.NUMBERS}
_SHAPE = dict.fromkeys(("mean", "std", "size", "resize", "scale", "crop"), Part.NUMBERS)
_DIFFUSION = {
    "steps": Part.NUMBERS, "guidance": Part.NUMBERS, "size": Part.WORD, "batch": Part.NUMBERS, "device": Part.DEVICE,
    "dtype": Part.WORD, "scheduler": Part.WORD, "compile": Part.WORD, "mislabel": Part.NUMBERS, "lora": Part.FOLDER,
    "debias": Part.TENSORS,
}  # fmt: skip
_NOISE = {**_DIFFUSION, "prompt": Part.TEXT}
_BERT = {"device": Part.DEVICE, **dict.fromkeys(("epochs", "rate", "batch"), Part.NUMBERS)}
_HF = {"revision": Part.WORD, "dtype": Part.WORD, "device": Part.DEVICE, "batch": Part.NUMBERS}
_VLLM = {
    "revision": Part.WORD, "dtype": Part.WORD, "enforce_eager": Part.WORD, **dict.fromkeys(
        ("max_model_len", "max_num_seqs", "gpu_memory_utilization", "kv_cache_memory_bytes", "tensor_parallel_size"),
        Part.NUMBERS,
    ),
}  # fmt: skip
_ONNX = {
    **_SHAPE, **dict.fromkeys(("preprocess", "squash", "interpolation", "channels", "layout"), Part.WORD),
    "labels": Part.LABELS, **dict.fromkeys(("input", "output", "output_name"), Part.TEXT),
    "threads": Part.NUMBERS, "batch": Part.NUMBERS, "device": Part.DEVICE,
}  # fmt: skip
_WORDS = {"template": Part.TEXT, "vocabulary": Part.FILE, "temperature": Part.NUMBERS}
_CLIP = {"weights": Part.WEIGHTS, **_RUNTIME}
_TABLE = {"labels": Part.LABELS, **dict.fromkeys(("file", "prediction", "probability", "ignore"), Part.TEXT)}
_URL, _SERVED = Grammar(Part.URL, {}), Grammar(Part.SERVED, {})

SCHEMES: dict[tuple[str, str], Grammar | None] = {
    ("classifier", "world"): Grammar(Part.WORD, {**_ZERO_SHOT, **_RUNTIME}),
    ("classifier", "onnx"): Grammar(Part.GRAPH, _ONNX),
    ("classifier", "timm"): Grammar(Part.MODEL, _WEIGHTS_OPTIONS, "timm/"),
    ("classifier", "torchvision"): Grammar(Part.MODEL, {**_WEIGHTS_OPTIONS, **_SHAPE}, "torchvision/"),
    ("classifier", "hf"): Grammar(Part.MODEL, {"revision": Part.WORD, "labels": Part.LABELS, **_RUNTIME}),
    ("classifier", "open_clip"): Grammar(Part.MODEL, {**_CLIP, **_ZERO_SHOT}, "open_clip/"),
    ("classifier", "http"): _URL,
    ("classifier", "https"): _URL,
    ("classifier", "table"): Grammar(Part.TABLE, _TABLE),
    ("classifier", "in-memory"): None,  # a model of the program that calls the library
    ("language_model", "hf"): Grammar(Part.MODEL, {"dtype": Part.WORD, "device": Part.DEVICE, "revision": Part.WORD}),
    ("language_model", "openai"): _SERVED,
    ("language_model", "scripted"): Grammar(Part.FILE, {}),
    ("language_model", "vllm"): Grammar(Part.MODEL, _VLLM),
    ("language_model", "world"): Grammar(Part.WORD, {"dtype": Part.WORD, "device": Part.DEVICE}),
    ("encoder", "open_clip"): Grammar(Part.MODEL, _CLIP, "open_clip/"),
    ("encoder", "world"): Grammar(Part.WORD, _RUNTIME),
    ("image_generator", "diffusers"): Grammar(Part.MODEL, _DIFFUSION),
    ("image_generator", "world"): Grammar(Part.WORD, {**_DIFFUSION, "links": Part.LINKS}),
    ("captioner", "open_clip"): Grammar(Part.MODEL, {**_CLIP, **_WORDS}, "open_clip/"),
    ("captioner", "hf-vlm"): Grammar(Part.MODEL, _HF),
    ("captioner", "openai"): _SERVED,
    ("captioner", "vllm"): Grammar(Part.MODEL, _VLLM),
    ("captioner", "scripted"): Grammar(Part.FILE, {}),
    ("captioner", "world"): Grammar(Part.WORD, {**_WORDS, **_RUNTIME}),
    ("index", "faiss"): Grammar(
        Part.FOLDER, {"probes": Part.NUMBERS, "shortlist": Part.NUMBERS, "device": Part.DEVICE}
    ),
    ("latent_generator", "diffusers"): Grammar(Part.MODEL, _NOISE),
    ("latent_generator", "world"): Grammar(Part.WORD, _NOISE),
    **{("latent_generator", kind): Grammar(Part.LOCAL, {"device": Part.DEVICE}) for kind in ("gan", "style", "vae")},
    ("group_guesser", "bert"): Grammar(Part.MODEL, _BERT),
    # Only packaged ones: a word cannot be a path.
    ("sentence_encoder", "sentence-transformers"): Grammar(Part.WORD, {"device": Part.DEVICE, "batch": Part.NUMBERS}),
}
"""(Role, scheme) → what its specs contain; None: refused in submitted configs."""

_PATTERNS = {
    Part.WORD: re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"),
    Part.NUMBERS: re.compile(r"[0-9.,eE+-]{1,100}"),
    Part.DEVICE: re.compile(r"auto|cpu|cuda(:\d{1,3})?"),
    Part.TEXT: re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,300}"),
}
NO_LINKS = "none"
_NAMES = re.compile(r"[^/\\~$\x00-\x1f\x7f]+")
_PUBLISHED = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_HUB = re.compile(
    r"(?:hf-hub:)?([A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?)(?:@[\w.-]{1,100})?"
)
_SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+ -]{0,199}")
_UPLOADS_OF_PART = {
    Part.GRAPH: ("onnx",), Part.WEIGHTS: ("safetensors",), Part.TABLE: ("table", "csv"), Part.FOLDER: (),
    Part.MODEL: (), Part.FILE: (), Part.LABELS: ("text",), Part.LINKS: (), Part.TENSORS: ("safetensors",),
}  # fmt: skip


def checked_spec(text: str, role: Role, field: str, policy: Policy, locate: Locate) -> str:
    """Returns the spec with its paths resolved. ConfigError names the `field` and the part of the spec that is
    refused."""
    if role == "index" and not text.startswith("faiss:"):
        return locate(text, ())
    try:
        spec = parse(text)
    except (SpecError, ValueError) as error:
        raise ConfigError(field, str(error)[:300]) from error
    grammar = SCHEMES.get((role, spec.scheme))
    allowed = [scheme for scheme in policy.schemes_of(role) if SCHEMES.get((role, scheme)) is not None]
    if grammar is None or spec.scheme not in allowed:
        raise ConfigError(
            field,
            f"{spec.scheme[:60]!r} is not a scheme that this endpoint accepts here; {nearest(spec.scheme, allowed)}",
        )
    if grammar.name in (Part.URL, Part.SERVED):
        return _checked_service(text, spec.name, grammar.name, field, policy)
    name, _, query = text.removeprefix(f"{spec.scheme}:").partition("?")
    if spec.scheme == "world" and not zoo.has(name):
        raise ConfigError(field, f"the world has no model {name[:60]!r}; {nearest(name, zoo.names())}")
    head = f"{spec.scheme}:{_checked_name(name, grammar, field, policy, locate)}"
    options = [_checked_option(key, value, grammar, field, locate) for key, value in _pairs(query, field)]
    return f"{head}?{'&'.join(options)}" if options else head


def url_policy(policy: Policy) -> UrlPolicy:
    """Returns the rules for URLs that a job's models may call."""
    return UrlPolicy(tuple(policy.urls), tuple(policy.networks), policy.answer_bytes, policy.answer_seconds)


def _checked_service(text: str, name: str, part: Part, field: str, policy: Policy) -> str:
    url, separator, model = name.partition("#") if part is Part.SERVED else (text, "", "")
    if separator and not _SERVED_NAME.fullmatch(model):
        raise ConfigError(field, f"{model[:100]!a} is not the name of a served model")
    check_url(url, url_policy(policy))
    return text


def _checked_name(name: str, grammar: Grammar, field: str, policy: Policy, locate: Locate) -> str:
    if grammar.name is Part.WORD:
        return _fitting(name, Part.WORD, "name", field)
    if grammar.name is Part.LOCAL and not name.startswith(LOCAL_DIR):
        raise ConfigError(field, f"{name[:100]!r}: expected {Part.LOCAL.value}")
    if grammar.name not in (Part.MODEL, Part.LOCAL):
        return locate(name, _UPLOADS_OF_PART[grammar.name])
    folder = name.removeprefix(LOCAL_DIR)
    if folder != name or looks_like_path(folder):
        if not policy.local_models:
            raise ConfigError(field, f"{name[:100]!r}: this endpoint reads no models from folders; upload its weights")
        # Keep the prefix only where there was one: some loaders would take it as part of a folder's name.
        return name[: len(name) - len(folder)] + locate(folder, ())
    match = _HUB.fullmatch(name)
    if match is None or ".." in name:
        raise ConfigError(
            field, f"{name[:100]!r} is not the name of a model: expected name, org/name or a path below data/"
        )
    # The library decides where a plain name (`resnet50.a1_in1k`, `ViT-B-32/laion2b`) is downloaded from.
    full_name = match[1] if not grammar.hub or name.startswith("hf-hub:") else f"{grammar.hub}{match[1]}"
    if not any(fnmatchcase(full_name, pattern) for pattern in policy.hub):
        raise ConfigError(
            field, f"{full_name!r} is not among the models that this endpoint accepts: {', '.join(policy.hub)}"
        )
    return name


def _pairs(query: str, field: str) -> list[tuple[str, str]]:
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)  # as `catalog.parse` reads it
    names = [name for name, _ in pairs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(field, f"the option {repeated[:60]!r} is given twice")
    return pairs


def _checked_option(key: str, value: str, grammar: Grammar, field: str, locate: Locate) -> str:
    part = grammar.options.get(key)
    if part is None:
        raise ConfigError(field, f"unknown option {key[:60]!r}; {nearest(key, grammar.options)}")
    if part in _PATTERNS:
        value = _fitting(value, part, key, field)
    elif not _is_no_file(value, part):
        value = locate(value, _UPLOADS_OF_PART[part])
    return f"{key}={quote(value, safe='/:,')}"


def _is_no_file(value: str, part: Part) -> bool:
    """Returns whether the value of an option that may be a path is one of its other allowed values."""
    if part is Part.LABELS:
        return "," in value and _NAMES.fullmatch(value) is not None
    if part is Part.WEIGHTS:
        return _PUBLISHED.fullmatch(value) is not None
    return part is Part.LINKS and value == NO_LINKS


def _fitting(value: str, part: Part, option: str, field: str) -> str:
    if not _PATTERNS[part].fullmatch(value):
        raise ConfigError(field, f"{option}={value[:100]!a}: expected {part.value}")
    return value


# Paths in configs and manifests of before the storage was moved, as by `c2b restore` into another folder.


_NAMING = ("config", "models")
"""The fields of a manifest that name files."""


def with_present_paths(value: Any, tenant_folder: str) -> Any:
    """Returns a JSON value in which paths below the tenant's folder in an earlier storage lead to the present one.

    A path may be a text of its own, or part of a spec such as `onnx:PATH?mean=0.5`. URLs stay as they are.
    """
    if isinstance(value, str):
        return _earlier_paths(tenant_folder).sub(lambda match: _present_path(match[0], tenant_folder), value)
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


def _earlier_paths(tenant_folder: str) -> re.Pattern[str]:
    tenant_id = re.escape(tenant_folder.rstrip("/").rpartition("/")[2])
    return re.compile(rf"(?:^|(?<=[:=,]))(?:s3:/)?/(?!/)[^?#]*?/tenants/{tenant_id}/(?=(?:{DATA}|{UPLOADS}|{RUNS})/)")


def _present_path(folder: str, tenant_folder: str) -> str:
    """Returns the tenant's present folder in place of `folder`, unless both are one, under two names."""
    is_same = os.path.realpath(folder) == os.path.realpath(tenant_folder)
    return folder if is_same else f"{tenant_folder.rstrip('/')}/"
