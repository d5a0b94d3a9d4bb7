"""Kept answers: bit for bit what was computed, of the same image, model and tenant alone, within so many bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from c2b_ray.roles import Pixels
from c2b_ray.serving.answers import AnswerCache
from c2b_ray.serving.batching import ModelThreads
from c2b_ray.serving.pictures import Packed, Rows, pack, pack_files, unpack_files

IDENTITY = ("tenant_a", "timm:x?crop=1", "rev1")
ROW = 3 * 4 + 250


class Model:
    """Answers a file with numbers that no later call gives; `b"bad"` cannot be decoded, `b"nan"` has no answer."""

    def __init__(self, answers: AnswerCache) -> None:
        self.answers, self.calls = answers, 0
        self.computed: list[list[bytes | None]] = []

    async def ask(self, packed: Packed, at: Sequence[int]) -> Rows:
        assert len(packed) == len(at)
        self.calls += 1
        files = unpack_files(packed)
        self.computed.append(files)
        rows = np.array([[i, self.calls, len(data or b"")] for i, data in zip(at, files, strict=True)], np.float32)
        rows[[data in (b"bad", b"nan", None) for data in files]] = np.nan
        return rows.reshape(-1, 3) / 7, ["broken" if data in (b"bad", None) else None for data in files]

    def about(self, *files: bytes | None, identity: Sequence[str] = IDENTITY) -> Rows:
        async def one() -> Rows:
            return await self.answers.of(identity, model_threads, pack_files(files), self.ask)

        model_threads = ModelThreads("Test")
        try:
            return asyncio.run(one())
        finally:
            model_threads.close()


def test_what_was_computed_comes_again_bit_for_bit_and_only_the_rest_is_computed() -> None:
    model = Model(AnswerCache(10**6))
    first, errors = model.about(b"one", b"bad", b"two", None, b"nan")
    again, same_errors = model.about(b"two", b"new", b"bad", b"one", b"nan")
    assert model.computed[1] == [b"new", b"bad", b"nan"]
    assert again[0].tobytes() == first[2].tobytes()
    assert again[3].tobytes() == first[0].tobytes()
    assert again[1].tolist() == np.array([1 / 7, 2 / 7, 3 / 7], np.float32).tolist()
    assert np.isnan(again[[2, 4]]).all()
    assert (errors, same_errors) == ([None, "broken", None, "broken", None], [None, None, "broken", None, None])
    third, _ = model.about(b"one", b"two")
    assert model.calls == 2
    assert third.tobytes() == first[[0, 2]].tobytes()


def test_another_tenant_model_revision_or_preprocessing_finds_nothing() -> None:
    model = Model(AnswerCache(10**6))
    model.about(b"one")
    for identity in (
        ("tenant_b", "timm:x?crop=1", "rev1"),
        ("tenant_a", "timm:x?crop=1", "rev2"),
        ("tenant_a", "timm:x?crop=.9", "rev1"),
        ("tenant_a", "timm:x?crop=1rev1", ""),
    ):
        model.about(b"one", identity=identity)
    assert model.calls == 5
    model.about(b"one")
    assert model.calls == 5


def test_those_unused_for_longest_make_room_and_a_limit_of_none_keeps_none() -> None:
    model = Model(AnswerCache(2 * ROW))
    model.about(b"one", b"two")
    model.about(b"one")  # used again: two is the older one
    model.about(b"three")
    assert (len(model.answers), model.answers.size) == (2, 2 * ROW)
    model.about(b"one", b"three")
    assert model.calls == 2
    model.about(b"two")
    assert model.calls == 3
    model.answers.limit(0)
    assert (len(model.answers), model.answers.size) == (0, 0)
    model.about(b"two")
    assert (model.calls, len(model.answers)) == (4, 0)


def test_pixels_of_the_same_bytes_and_another_shape_are_another_image() -> None:
    flat = np.arange(36, dtype=np.uint8)
    shapes: list[Pixels] = [flat.reshape(2, 6, 3), flat.reshape(6, 2, 3), flat.reshape(2, 6, 3)]
    asked: list[int] = []

    async def ask(packed: Packed, at: Sequence[int]) -> Rows:
        asked.append(len(packed))
        return np.ones((len(packed), 2), np.float32), [None] * len(packed)

    async def each() -> None:
        answers, model_threads = AnswerCache(10**6), ModelThreads("Test")
        for image in shapes:
            await answers.of(IDENTITY, model_threads, pack([image]), ask)
        model_threads.close()

    asyncio.run(each())
    assert asked == [1, 1]


def test_a_caller_that_changes_its_rows_changes_no_kept_answer() -> None:
    model = Model(AnswerCache(10**6))
    first, _ = model.about(b"one")
    before = first.tobytes()
    first[:] = 0
    second, _ = model.about(b"one")
    second[:] = 1
    assert model.about(b"one")[0].tobytes() == before
