"""Files in parts: what arrived stays, under the hash of the whole; it counts towards the quota and is the tenant's."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from endpoint_app import started
from safetensors.numpy import save

from c2b_ray.endpoint.policy import uploads
from c2b_ray.endpoint.policy.uploads import sweep_uploads

WEIGHTS = save({"w": np.arange(1000, dtype=np.float32)})


def hash_of(data):
    return hashlib.sha256(data).hexdigest()


def put(client, whole, number, data, **headers):
    sent = {"X-Part-SHA256": hash_of(data), **headers}
    return client.put(f"/v1/uploads/{hash_of(whole)}/parts/{number}", content=data, headers=sent)


def join(client, whole, kind="safetensors"):
    return client.post(f"/v1/uploads/{hash_of(whole)}", headers={"X-Upload-Kind": kind, "X-Upload-Name": "net"})


def test_parts_in_any_order_become_the_file(endpoint):
    client = endpoint.as_("a")
    for number in (1, 0, 1):
        answer = put(client, WEIGHTS, number, WEIGHTS[number * 1500 : (number + 1) * 1500])
        assert answer.status_code == 200, answer.text
    assert join(client, WEIGHTS).json()["code"] == "incomplete"
    assert put(client, WEIGHTS, 2, WEIGHTS[3000:]).status_code == 200
    there = client.get(f"/v1/uploads/{hash_of(WEIGHTS)}/parts").json()
    assert [(one["number"], one["bytes"]) for one in there["parts"]] == [(0, 1500), (1, 1500), (2, len(WEIGHTS) - 3000)]
    assert there["part_bytes"] == uploads.PART_BYTES
    stored = join(client, WEIGHTS)
    assert (stored.status_code, stored.json()["spec"]) == (201, f"upload:{hash_of(WEIGHTS)}")
    assert client.get(f"/v1/uploads/{hash_of(WEIGHTS)}/parts").status_code == 404
    assert not uploads.unfinished_parts(endpoint.context.tenant_root(endpoint.tenants["a"]))
    assert client.get(f"/v1/uploads/{hash_of(WEIGHTS)}").status_code == 200
    assert join(client, b"never sent").status_code == 404


def test_a_file_that_is_here_is_joined_again(endpoint):
    """The first answer was lost; or a colleague, who sent the same file, was faster."""
    client, data = endpoint.as_("a"), save({"w": np.arange(5, dtype=np.float32)})
    assert put(client, data, 0, data).status_code == 200
    stored, again = join(client, data), join(client, data)
    assert (stored.status_code, again.status_code, again.json()) == (201, 200, stored.json())
    assert put(client, data, 1, data[50:]).status_code == 200, "the colleague's second part"
    assert join(client, data).status_code == 200
    assert hash_of(data) not in uploads.unfinished_parts(endpoint.context.tenant_root(endpoint.tenants["a"]))
    assert join(client, data, "csv").status_code == 404, "of another kind it is not here"


def test_two_that_join_the_same_file_get_the_same_upload(endpoint):
    client, data = endpoint.as_("a"), save({"w": np.arange(4, dtype=np.float32)})
    assert put(client, data, 0, data).status_code == 200
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda _: join(client, data), range(4))]
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]


def test_what_is_no_file_of_its_kind_is_refused_as_when_sent_whole(endpoint):
    client, pickle = endpoint.as_("a"), b"\x80\x04 no weights"
    assert put(client, pickle, 0, pickle).status_code == 200
    whole = client.post("/v1/uploads", content=pickle, headers={"X-Upload-Kind": "safetensors"})
    answer = join(client, pickle)
    assert (answer.status_code, answer.json()["code"]) == (422, "refused_upload")
    assert answer.json()["detail"] == whole.json()["detail"]


def test_a_damaged_part_is_refused(endpoint):
    answer = put(endpoint.as_("a"), b"xyz", 0, b"xyz", **{"X-Part-SHA256": hash_of(b"abc")})
    assert (answer.status_code, answer.json()["code"]) == (422, "refused_upload")
    assert "damaged in transit" in answer.json()["detail"]


def test_parts_of_another_tenant_are_not_there(endpoint):
    data = b"a,b\n1,2\n"
    assert put(endpoint.as_("a"), data, 0, data).status_code == 200
    assert endpoint.as_("b").get(f"/v1/uploads/{hash_of(data)}/parts").status_code == 404
    assert join(endpoint.as_("b"), data, "csv").status_code == 404
    assert join(endpoint.as_("a"), data, "csv").status_code == 201


@pytest.mark.parametrize(
    "path", ["/v1/uploads/../parts/0", "/v1/uploads/abc/parts/0", f"/v1/uploads/{'a' * 64}/parts/-1"]
)
def test_a_path_that_names_no_part_is_refused(endpoint, path):
    answer = endpoint.as_("a").put(path, content=b"x", headers={"X-Part-SHA256": hash_of(b"x")})
    assert answer.status_code in (404, 405, 422)


def test_a_part_too_large_or_too_far_is_refused(endpoint):
    client = endpoint.as_("a")
    data = b"x" * (uploads.PART_BYTES + 1)
    assert put(client, data, 0, data).status_code == 413
    beyond = endpoint.config.policy.upload_bytes // uploads.PART_BYTES + 1
    assert put(client, b"x", beyond, b"x").status_code == 413


def test_parts_count_towards_the_quota_and_are_of_few_files(tmp_path):
    endpoint = started(tmp_path, {"quotas": {"storage_bytes": 1000}})
    client = endpoint.as_("b")
    assert put(client, b"1", 0, b"1" * 600).status_code == 200
    assert put(client, b"1", 0, b"1" * 600).status_code == 200, "the same part again takes no more room"
    answer = put(client, b"2", 0, b"2" * 600)
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
    for number in range(uploads.MOST_UNFINISHED_FILES - 1):
        assert put(client, f"other {number}".encode(), 0, b"x").status_code == 200
    answer = put(client, b"one more", 0, b"x")
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_uploads")
    root = endpoint.context.tenant_root(endpoint.tenants["b"])
    for name in uploads.unfinished_parts(root):
        os.utime(f"{root}/uploads/.incoming/{name}", (0, 0))
    assert sweep_uploads(root) == uploads.MOST_UNFINISHED_FILES
    assert put(client, b"one more", 0, b"x").status_code == 200
    endpoint.db.close()


@pytest.mark.parametrize(
    ("kind", "data", "refused"),
    [
        ("csv", "bild,größe\na.png,1\n".encode(), ""),
        ("text", b"bus\nboat\n", ""),
        ("csv", "größe\n".encode("latin-1"), "UTF-8"),
        ("text", b"bus\0boat", "NUL"),
        ("csv", b"a" * (2**20 - 1) + "ö".encode() + b"\n", ""),
    ],
)
def test_tables_and_lists_of_names_are_text(endpoint, kind, data, refused):
    answer = endpoint.as_("a").post("/v1/uploads", content=data, headers={"X-Upload-Kind": kind})
    assert answer.status_code == (422 if refused else 201), answer.text
    assert refused in answer.text


def test_the_catalogue_says_what_an_upload_may_be(endpoint):
    limits = endpoint.as_("a").get("/v1/catalog").json()["uploads"]
    assert limits["bytes"] == endpoint.config.policy.upload_bytes
    assert {"csv", "text", "table"} <= {*limits["kinds"]}
