"""From a handle to a deployment and back, in Serve's local testing mode: the same rows as the model itself gives."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ray import serve

from c2b_ray.errors import SourceError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.roles import Floats, Pixels
from c2b_ray.serving.answers import OWNER
from c2b_ray.serving.channel import CannotStart, Channel, from_text
from c2b_ray.serving.encoder import EncoderServer
from c2b_ray.serving.handles import ServedEncoder
from c2b_ray.serving.meters import Limits
from c2b_ray.steps import encoded

SPEC = "toy:level"


class Levels:
    """The mean level of an image as an angle; notes how many images it got at once."""

    dimension, revision = 2, "1"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        self.batches.append(len(images))
        angles = np.array([image.mean() / 255 for image in images])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        if "absent" in texts:
            raise SourceError("no such text", location="texts.txt")
        return np.array([[1, 0]] * len(texts), np.float32)


def files(n: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    for i in range(n):
        file = BytesIO()
        Image.new("RGB", (4, 3), (9 * i, 9 * i, 9 * i)).save(file, "PNG")
        found.append(file.getvalue() if i % 5 else None if i % 2 else b"cut off")
    return found


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Any:
    model = Levels()
    monkeypatch.setattr(catalog, "load", lambda role, spec: model)
    handle = serve.run(EncoderServer.bind(SPEC), name="encoder", _local_testing_mode=True)
    return ServedEncoder(SPEC, Channel("encoder", handle=handle)), model


@pytest.mark.parametrize("n", [0, 1, 2, 27])
def test_encoded_images_are_answered_as_by_the_model_itself(there: Any, n: int) -> None:
    served, _ = there
    found, errors = encoded.embeddings(files(n), served)
    expected, reasons = encoded.embeddings(files(n), Levels())
    np.testing.assert_array_equal(found, expected)
    assert errors == reasons


def test_requests_are_as_large_as_the_app_wants_and_gathered_into_one_batch(there: Any) -> None:
    served, model = there
    assert served.channel.limits() == Limits(32, 4)
    served.embeddings_of_files([data for data in files(300) if data][:96])
    assert sum(model.batches) <= 96
    assert len(model.batches) <= 3


def test_an_image_that_was_answered_is_not_asked_about_again_but_for_another_tenant(
    there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = EncoderServer.options(user_config={"answers_mb": 1}).bind(SPEC)
    handle = serve.run(app, name="encoder", _local_testing_mode=True)
    channel = Channel("encoder", handle=handle)
    # Serve's local mode, unlike a replica, takes requests before it has called `reconfigure`.
    while not handle.statistics.remote().result()["answers"]:
        ServedEncoder(SPEC, channel).embeddings_of_files(files(2))
    model = there[1]
    model.batches.clear()
    monkeypatch.setenv(OWNER, "tenant_a")
    first = ServedEncoder(SPEC, channel).embeddings_of_files(files(27))
    computed = sum(model.batches)
    again = ServedEncoder(SPEC, channel).embeddings_of_files(files(27)[::-1])
    assert sum(model.batches) == computed > 0
    assert again[0][::-1].tobytes() == first[0].tobytes()
    assert again[1][::-1] == first[1]
    monkeypatch.setenv(OWNER, "tenant_b")
    ServedEncoder(SPEC, channel).embeddings_of_files(files(27))
    assert sum(model.batches) == 2 * computed


def test_what_a_request_raises_arrives_with_every_field_and_the_app(there: Any) -> None:
    served, _ = there
    with pytest.raises(SourceError, match="no such text") as raised:
        served.encode_texts(["absent"])
    assert (raised.value.location, raised.value.app) == ("texts.txt", "encoder")


def test_what_a_constructor_raises_is_in_its_text_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(role: str, spec: str) -> Any:
        raise WeightsError("a pickle", location="/models/a.bin")

    monkeypatch.setattr(catalog, "load", damaged)
    with pytest.raises(CannotStart) as raised:
        EncoderServer.func_or_class(SPEC)
    found = from_text(str(raised.value))
    assert isinstance(found, WeightsError)
    assert (str(found), found.location) == ("a pickle", "/models/a.bin")
