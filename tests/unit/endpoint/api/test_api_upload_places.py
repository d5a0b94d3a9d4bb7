"""Uploads at once: a tenant has so many places, whatever way they come, and gives them back."""

import threading

import pytest

from c2b_ray.endpoint.api.context import OF_A_TENANT, UploadSlots
from c2b_ray.endpoint.api.problems import ProblemError
from c2b_ray.endpoint.policy.uploads import UploadReceiver


def test_a_tenant_has_its_places_and_others_have_theirs():
    slots = UploadSlots()
    held = [slots.hold("a") for _ in range(OF_A_TENANT)]
    for one in held:
        one.__enter__()
    with pytest.raises(ProblemError) as refused, slots.hold("a"):
        pass
    assert (refused.value.status, refused.value.code) == (429, "too_many_uploads")
    with slots.hold("b"):
        pass
    held[0].__exit__(None, None, None)
    with slots.hold("a"):
        pass


def test_an_upload_too_many_is_told_to_wait_and_one_that_is_refused_gives_its_place_back(endpoint):
    client, sent = endpoint.as_("a"), {"content": b"no model", "headers": {"X-Upload-Kind": "onnx"}}
    for _ in range(OF_A_TENANT + 2):
        assert client.post("/v1/uploads", **sent).status_code == 422
    held = [endpoint.context.upload_slots.hold(endpoint.tenants["a"]) for _ in range(OF_A_TENANT)]
    for one in held:
        one.__enter__()
    answer = client.post("/v1/uploads", **sent)
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (429, "too_many_uploads", "5")
    assert endpoint.as_("b").post("/v1/uploads", **sent).status_code == 422
    for one in held:
        one.__exit__(None, None, None)
    assert client.post("/v1/uploads", **sent).status_code == 422


def test_what_is_left_of_an_upload_is_removed_beside_other_requests(endpoint, monkeypatch):
    """Of a refused archive that may be 100,000 files, for which the event loop would answer nobody."""
    threads, abort = [], UploadReceiver.abort

    def noted(receiver):
        threads.append(threading.current_thread().name)
        abort(receiver)

    monkeypatch.setattr(UploadReceiver, "abort", noted)
    sent = {"content": b"no model", "headers": {"X-Upload-Kind": "onnx"}}
    assert endpoint.as_("a").post("/v1/uploads", **sent).status_code == 422
    assert [name.startswith("AnyIO worker") for name in threads] == [True]
