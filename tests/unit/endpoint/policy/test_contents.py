"""What a file says, that a tenant may name, of files that it may not; and the check in the job's own process."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy.configs import resolve_config
from c2b_ray.endpoint.policy.isolation import POLICY_VARIABLE
from c2b_ray.endpoint.policy.names import Tenancy
from c2b_ray.endpoint.work.child import prepared
from c2b_ray.errors import ConfigError


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "tenants" / "a"
    (root / "data" / "index").mkdir(parents=True)
    (tmp_path / "tenants" / "b" / "data").mkdir(parents=True)
    (tmp_path / "tenants" / "b" / "data" / "secret.png").write_bytes(b"x")
    return root


def start(root, **fields):
    """Submitted, and looked at again in the job's process."""
    images = fields.pop("images", {"source": "labelled", "table": "data/t.csv"})
    config = {"task": "t", "classes": ["bus"], "classifier": "world:clip", "images": images, **fields}
    return prepared("c2b", resolve_config(config, AuditConfig, Tenancy(str(root))), str(root))


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../../b/data/secret.png", "https://example.org/a.png", "file:///etc/passwd", "~/x", "a\\..\\b"],
)
def test_a_table_that_names_images_elsewhere_is_refused_by_its_row(root, name):
    (root / "data" / "t.csv").write_text(f"image,target_class\nok.png,bus\n{name},bus\n")
    with pytest.raises(ConfigError, match=r"images\.table: row 2: the image"):
        start(root)
    table = pa.table({"picture": ["ok.png", name], "target_class": ["bus", "bus"]})
    pq.write_table(table, root / "data" / "t.parquet")
    images = {"source": "labelled", "table": "data/t.parquet", "columns": {"image": "picture"}}
    with pytest.raises(ConfigError, match="row 2"):
        start(root, images=images)


def test_honest_tables_and_folders_start(root):
    (root / "data" / "t.csv").write_text("image,target_class\nphotos/a.png,bus\n")
    assert start(root)["images"]["table"].endswith("/data/t.csv")
    (root / "data" / "photos" / "bus").mkdir(parents=True)
    (root / "data" / "photos" / "bus" / "a.png").write_bytes(b"x")
    (root / "data" / "photos" / "bus" / "b.png").symlink_to(root / "data" / "photos" / "bus" / "a.png")
    start(root, images={"source": "labelled", "table": "data/photos"})


def test_a_link_that_leads_out_from_deep_in_a_folder_is_refused(root):
    (root / "data" / "photos" / "bus").mkdir(parents=True)
    (root / "data" / "photos" / "bus" / "a.png").symlink_to(root.parent / "b" / "data" / "secret.png")
    with pytest.raises(ConfigError, match=r"'bus/a\.png' in this folder is a link"):
        start(root, images={"source": "labelled", "table": "data/photos"})


@pytest.mark.parametrize(
    "manifest",
    [
        {"images_root": "../b/data", "encoder": "world:clip"},
        {"images_root": "/etc", "encoder": "world:clip"},
        {"images_root": "s3://other/x", "encoder": "world:clip"},
        {"images_root": 1, "encoder": "world:clip"},
        {"images_root": None, "encoder": "open_clip:ViT-B-32?weights=/srv/other/w.safetensors"},
        {"images_root": None, "encoder": "open_clip:local-dir:/srv/other"},
        {"images_root": None, "encoder": "http://169.254.169.254/"},
        {"images_root": None},
        [],
    ],
)
def test_an_index_whose_manifest_leads_out_is_refused(root, manifest):
    (root / "data" / "index" / "manifest.json").write_text(json.dumps(manifest))
    images = {"source": "retrieve", "index": "data/index"}
    with pytest.raises(ConfigError, match=r"images\.index"):
        start(root, images=images, attributes={"a": ["b", "c"]})
    honest = {"images_root": str(root / "data"), "encoder": "world:clip"}
    (root / "data" / "index" / "manifest.json").write_text(json.dumps(honest))
    start(root, images=images, attributes={"a": ["b", "c"]})


def test_models_in_a_tenants_folder_are_looked_at_like_uploads(root):
    (root / "data" / "t.csv").write_text("image,target_class\na.png,bus\n")
    model = root / "data" / "model"
    model.mkdir()
    (root / "data" / "w.safetensors").write_bytes(b"\x80\x04pickle")
    (root / "data" / "w.onnx").write_bytes(b"PK\x03\x04")
    (root / "data" / "w.pt").write_bytes(b"x")
    for spec in ("timm:resnet18?weights=data/w.safetensors", "onnx:data/w.onnx", "timm:resnet18?weights=data/w.pt"):
        with pytest.raises(ConfigError, match="classifier: w"):
            start(root, classifier=spec)
    (root / "data" / "w.safetensors").write_bytes(save({"w": np.ones(2, np.float32)}))
    start(root, classifier="timm:resnet18?weights=data/w.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../../../b/w.safetensors"}}))
    with pytest.raises(ConfigError, match="expected a file beside it"):
        start(root, classifier="hf:data/model")


def test_the_policy_of_a_jobs_process_is_its_environments(root, monkeypatch):
    (root / "data" / "t.csv").write_text("image,target_class\na.png,bus\n")
    resolved = {
        "task": "t",
        "classes": ["bus"],
        "classifier": "https://models.example.org/v1",
        "images": {"source": "labelled", "table": str(root / "data" / "t.csv")},
    }
    with pytest.raises(ConfigError, match="not among the URLs"):
        prepared("c2b", resolved, str(root))
    monkeypatch.setenv(POLICY_VARIABLE, Policy(urls=["https://models.example.org"]).model_dump_json())
    assert prepared("c2b", resolved, str(root)) == resolved
    monkeypatch.setenv(POLICY_VARIABLE, '{"urls": 1}')
    with pytest.raises(ConfigError, match="is not a valid policy"):
        prepared("c2b", resolved, str(root))
