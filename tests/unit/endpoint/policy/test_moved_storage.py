"""Paths of configs and runs follow the storage of an endpoint; nothing else in them changes."""

import json

import pytest

from c2b_ray.endpoint.policy.names import follow_storage, with_present_paths
from c2b_ray.tables import content_id

NEW = "/new/storage/tenants/tenant_a"
STORE = "s3://bucket/storage/tenants/tenant_a"


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("/old/tenants/tenant_a/data/t.csv", "/new/storage/tenants/tenant_a/data/t.csv"),
        ("onnx:/old/tenants/tenant_a/uploads/ff.onnx?std=0.5", f"onnx:{NEW}/uploads/ff.onnx?std=0.5"),
        ("hf:/o/tenants/tenant_a/data/m?labels=/o/tenants/tenant_a/data/l", f"hf:{NEW}/data/m?labels={NEW}/data/l"),
        ("s3://bucket/old/tenants/tenant_a/runs/job_1", f"{NEW}/runs/job_1"),
        ("/old/tenants/tenant_b/data/t.csv", None),
        ("https://host/tenants/tenant_a/data/", None),
        ("a photo of /tenants/tenant_a/data/", None),
        ("world:clip", None),
    ],
)  # fmt: skip
def test_paths_of_this_tenant_alone_follow(text, becomes):
    assert with_present_paths({"x": [text, 3, None]}, NEW) == {"x": [becomes or text, 3, None]}


def test_into_a_store_and_out_of_it():
    assert with_present_paths("/old/tenants/tenant_a/data/t.csv", STORE) == f"{STORE}/data/t.csv"
    assert with_present_paths(f"{STORE}/data/t.csv", STORE) == f"{STORE}/data/t.csv"


def test_a_folder_under_two_names_is_one(tmp_path):
    (tmp_path / "disk" / "tenants" / "tenant_a" / "data").mkdir(parents=True)
    (tmp_path / "mounted").symlink_to(tmp_path / "disk")
    path = f"{tmp_path}/disk/tenants/tenant_a/data/t.csv"
    assert with_present_paths(path, f"{tmp_path}/mounted/tenants/tenant_a") == path


def manifest(folder):
    config = {"images": {"table": f"{folder}/data/t.csv"}}
    models = {"table": {"spec": f"{folder}/data/t.csv", "revision": "1"}}
    return {"kind": "c2b", "run_id": content_id("c2b", config), "config": config, "models": models, "counts": {"n": 1}}


def test_a_run_gets_the_id_that_its_config_has_here(tmp_path):
    tenant = tmp_path / "tenants" / "tenant_a"
    run = tenant / "runs" / "job_1"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(manifest("/old/tenants/tenant_a")))
    follow_storage(str(run), str(tenant))
    assert json.loads((run / "run.json").read_text()) == manifest(tenant)


@pytest.mark.parametrize("text", ["", "begun", "[]", '{"kind": "c2b"}'])
def test_what_is_no_manifest_stays(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    follow_storage(str(tmp_path), "/new/tenants/tenant_a")
    follow_storage(str(tmp_path / "absent"), "/new/tenants/tenant_a")
    assert (tmp_path / "run.json").read_text() == text
