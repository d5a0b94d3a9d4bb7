"""What configs of `prompts`, `clip-bias` and `latent` may name, and the ways out that people try in each field."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.kinds import kinds
from c2b_ray.endpoint.policy.configs import check_resolved, paths_of, resolve_config
from c2b_ray.endpoint.policy.names import Tenancy
from c2b_ray.endpoint.work.child import prepared
from c2b_ray.errors import ConfigError

SHA, OTHER = "a" * 64, "b" * 64
CONFIGS: dict[str, dict[str, Any]] = {
    "prompts": {
        "subjects": ["bus"],
        "attributes": {"lighting": ["day", "night"], "size": {"values": ["small", "large"], "targets": ["large"]}},
        "generators": {"base": "world:linked?links=data/links.yaml", "own": "diffusers:local-dir:data/model"},
        "language_model": "world:prompter",
        "judge": "world:clip",
        "encoder": "open_clip:local-dir:data/model",
        "heads": {"teacher": "world:clip", "files": "data/heads"},
        "associations": None,
    },
    "clip-bias": {
        "models": {"a": "world:clip-05", "b": "open_clip:local-dir:data/model"},
        "datasets": {"peo.ple": {"table": "data/t.parquet", "attributes": ["coin"], "columns": {"image": "picture"}}},
        "downstream": {
            "v": {"dataset": "peo.ple", "vqa": {"a": "data/t.parquet", "b": f"upload:{SHA}"}},
            "c": {"dataset": "peo.ple", "captions": {"a": "data/t.parquet"}},
        },
        "spaces": {"dataset": "peo.ple", "after": {"a": "data/t.parquet"}, "before": {"a": "data/t.parquet"}},
        "leakage": {"guesser": "bert:local-dir:data/model"},
    },
    "latent": {
        "classifier": {"one": "timm:local-dir:data/model", "two": "world:clip"},
        "generator": {"g": "vae:local-dir:data/model", "n": "diffusers:local-dir:data/model?prompt=a bus&steps=6"},
        "latents": "data/t.parquet",
        "hyperplanes": "data/t.parquet",
        "captioner": "world:clip",
        "problems": [{"generator": "g", "classifier": "one", "references": ["two"]}],
    },
}
NAMED = {
    "prompts": ["generators.base", "generators.own", "language_model", "judge", "encoder", "heads.teacher",
                "heads.files"],
    "clip-bias": ["models.a", "models.b", "datasets|peo.ple|table", "downstream|v|vqa|a", "downstream|c|captions|a",
                  "spaces.after.a", "spaces.before.a", "leakage.guesser"],
    "latent": ["classifier.one", "generator.g", "latents", "hyperplanes", "captioner"],
}  # fmt: skip
"""Every place of these configs that names something."""
OUT = ["/etc/passwd", "../tenant_b/data/secret", "data/../../tenant_b/data/secret", "data/out/secret", "~/x",
       "runs/job_1/x", "data/absent", "file:///etc/passwd", "https://example.org/x", "http://169.254.169.254/", "s3://other/x",
       f"upload:{OTHER}", "run:job_1", "data/%2e%2e/x"]  # fmt: skip
WRITTEN = ["{}", "{}?x=1", "local-dir:{}", "timm:local-dir:{}", "diffusers:local-dir:{}", "vae:local-dir:{}",
           "open_clip:local-dir:{}", "bert:{}", "bert:local-dir:{}", "scripted:{}", "world:clip?vocabulary={}",
           "world:hidden?lora={}", "world:hidden?debias={}", "world:linked?links={}",
           "diffusers:local-dir:data/model?debias={}"]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tenants" / "tenant_a"
    for name in ("data/model", "data/heads", "data/adapter", "uploads", "runs/job_1"):
        (root / name).mkdir(parents=True)
    (root / "data" / "links.yaml").write_text("[]")
    (root / "data" / "heads.safetensors").write_bytes(b"x")
    pq.write_table(pa.table({"picture": ["a.png"], "image": ["/elsewhere"]}), root / "data" / "t.parquet")
    (root / "uploads" / f"{SHA}.parquet").write_bytes((root / "data" / "t.parquet").read_bytes())
    other = tmp_path / "tenants" / "tenant_b" / "data"
    other.mkdir(parents=True)
    (other / "secret").write_text("x")
    (root / "data" / "out").symlink_to(other)
    return root


def checked(root: Path, kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return resolve_config(config, kinds()[kind].config_class, Tenancy(str(root), Policy(), {SHA: "table"}))


def changed(kind: str, place: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIGS[kind])
    *steps, last = place.split("|" if "|" in place else ".")
    section: Any = config
    for step in steps:
        section = section[step]
    section[last] = value
    return config


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_path_is_found_below_the_tenants_folder(root: Path, kind: str) -> None:
    result = checked(root, kind, CONFIGS[kind])
    tenancy = Tenancy(str(root), Policy())
    model = kinds()[kind].config_class
    check_resolved(result, model, tenancy)
    paths = [path for _, _, path in paths_of(result, model, tenancy)]
    written = json.dumps(CONFIGS[kind])
    assert len(paths) == written.count("data/") + written.count("upload:") > 3
    assert all(path.startswith(os.path.realpath(root)) for path in paths)
    assert json.loads(json.dumps(result)).keys() == CONFIGS[kind].keys()
    assert prepared(kind, result, str(root)) == result


@pytest.mark.parametrize(("kind", "place"), [(kind, place) for kind, places in NAMED.items() for place in places])
def test_ways_out_are_refused_at_every_place(root: Path, kind: str, place: str) -> None:
    field = place.replace("|", ".")
    for text in (text.format(path) for path in OUT for text in WRITTEN):
        with pytest.raises(ConfigError) as error:
            checked(root, kind, changed(kind, place, text))
        assert error.value.field
        assert field.startswith(error.value.field)  # of a mapping of specs, the mapping is named


@pytest.mark.parametrize(
    "spec",
    [
        "world:hidden?debias=HEADS", "world:hidden?lora=org/adapter", "world:hidden?lora=hidden-lora",
        "world:linked?links=NONE", "world:linked?links=/proc/self/environ", "world:hidden?lora=data/out",
        "world:hidden?lora=data/adapter&lora=/etc", "diffusers:/etc", "diffusers:..", "acme:x", "vae:local-dir:data",
    ],
)  # fmt: skip
def test_generators_that_name_other_files(root: Path, spec: str) -> None:
    with pytest.raises(ConfigError, match="generators"):
        checked(root, "prompts", changed("prompts", "generators", spec))


def test_adapters_heads_and_links_of_the_tenant_are_found(root: Path) -> None:
    real = os.path.realpath(root)
    for written, found in (
        ("world:hidden?lora=data/adapter", f"world:hidden?lora={real}/data/adapter"),
        ("world:hidden?debias=data/heads.safetensors", f"world:hidden?debias={real}/data/heads.safetensors"),
        ("world:linked?links=none", "world:linked?links=none"),
    ):
        assert checked(root, "prompts", changed("prompts", "generators", written))["generators"] == {"base": found}


def test_networks_of_latent_generators_come_from_folders_alone(root: Path) -> None:
    for spec in ("vae:org/name", "gan:x", "style:/etc", "vae:data/model"):
        with pytest.raises(ConfigError, match="expected local-dir: and a folder"):
            checked(root, "latent", changed("latent", "generator.g", spec))


def test_a_dataset_whose_name_has_dots_is_looked_into_all_the_same(root: Path) -> None:
    """Its column of images is called `picture`; the other, `image`, is not read."""
    result = checked(root, "clip-bias", CONFIGS["clip-bias"])
    prepared("clip-bias", result, str(root))
    pq.write_table(pa.table({"picture": ["../../tenant_b/data/secret"]}), root / "data" / "t.parquet")
    with pytest.raises(ConfigError, match=r"datasets\.peo\.ple\.table: row 1: the image"):
        prepared("clip-bias", result, str(root))


def test_what_changed_since_is_refused(root: Path) -> None:
    result = checked(root, "prompts", CONFIGS["prompts"])
    (root / "data" / "heads").rmdir()
    (root / "data" / "heads").symlink_to("/etc")
    with pytest.raises(ConfigError, match=r"heads\.files: the path no longer leads"):
        prepared("prompts", result, str(root))


def test_heads_that_are_none_are_refused_before_they_are_read(root: Path) -> None:
    (root / "data" / "heads" / "a.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(ConfigError, match=r"heads\.files: a\.safetensors: the file is a pickle"):
        prepared("prompts", checked(root, "prompts", CONFIGS["prompts"]), str(root))


def test_an_adapter_that_would_have_a_module_imported_is_refused(root: Path) -> None:
    adapter = root / "data" / "adapter" / "adapter_config.json"
    config = checked(root, "prompts", changed("prompts", "generators", "world:hidden?lora=data/adapter"))
    adapter.write_text(json.dumps({"peft_type": "LORA", "megatron_config": None, "megatron_core": "megatron.core"}))
    assert prepared("prompts", config, str(root)) == config
    adapter.write_text(json.dumps({"peft_type": "LORA", "megatron_config": {"x": 1}, "megatron_core": "os"}))
    with pytest.raises(ConfigError, match=r"generators: adapter_config\.json names a library"):
        prepared("prompts", config, str(root))
