"""Models behind real Serve: the same answers in the same order as in process, gathered."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from PIL import Image
from requests_of_apps import RENDERER, asked, pictures, prompts
from toys import ToyClassifier

from c2b_ray.models import catalog
from c2b_ray.models.index import build as faiss_build
from c2b_ray.roles import Captioner, CaptionScorer, GeneratedImage, ImageGenerator, Pixels, Question
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import Served, running
from c2b_ray.serving.handles import ServedCaptioner, ServedEncoder, ServedGenerator, ServedLanguageModel, scoring
from c2b_ray.serving.meters import Limits
from c2b_ray.serving.pictures import pack
from c2b_ray.steps import encoded as steps


@pytest.fixture(scope="module")
def index_path(tmp_path_factory: pytest.TempPathFactory, toys: str) -> str:
    root = tmp_path_factory.mktemp("index")
    vectors = catalog.encoder("toy:eye").encode_texts([f"picture {i}" for i in range(30)])
    rows = {
        "key": pa.array([f"{i}.png" for i in range(30)]),
        "bytes": pa.array([b"%d" % i for i in range(30)], pa.binary()),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
    }
    pq.write_table(pa.table(rows), root / "rows.parquet")
    faiss_build.write(root / "index", "toy:eye", "toy-1", [root / "rows.parquet"])
    return str(root / "index")


@pytest.mark.parametrize("n", [0, 1, 23])
def test_language_model_answers_as_in_process(served: Served, n: int) -> None:
    here, there = catalog.language_model("toy:talker"), served.language_model
    assert there is not None
    there = ServedLanguageModel("toy:talker", there.channel, chunk=5)
    texts = ["a" * i for i in range(n)]
    requests = [asked(text, seed) for seed, text in enumerate(texts)]
    assert there.chat(requests) == here.chat(requests)
    assert there.next_tokens(texts, 3) == here.next_tokens(texts, 3)
    assert there.log_likelihood(texts) == here.log_likelihood(texts)


@pytest.mark.parametrize("n", [0, 1, 23])
def test_encoder_answers_as_in_process(served: Served, n: int) -> None:
    here, encoder = catalog.encoder("toy:eye"), served.encoder
    assert encoder is not None
    there = ServedEncoder("toy:eye", encoder.channel, chunk=5)
    assert (there.dimension, there.revision, there.facts) == (here.dimension, here.revision, here.facts)
    texts, images = [f"text {i}" for i in range(n)], pictures(n)
    np.testing.assert_array_equal(there.encode_texts(texts), here.encode_texts(texts))
    np.testing.assert_array_equal(there.encode_images(images), here.encode_images(images))


@pytest.mark.parametrize("n", [0, 1, 23])
def test_captioner_answers_as_in_process(served: Served, n: int) -> None:
    here, captioner = catalog.captioner("toy:teller"), served.captioner
    assert captioner is not None
    there = ServedCaptioner("toy:teller", captioner.channel, chunk=5)
    assert isinstance(there, Captioner)
    assert there.revision == here.revision
    images, questions = pictures(n), [Question("?", tuple("abc"[: 2 + i % 2])) for i in range(n)]
    labels = [f"label {i}" if i % 4 else "" for i in range(n)]
    assert there.caption(images, labels) == here.caption(images, labels)
    assert there.answer(images, questions) == here.answer(images, questions)


def test_captioner_scores_captions_as_in_process(served: Served) -> None:
    assert served.captioner is not None
    there = scoring(ServedCaptioner("toy:teller", served.captioner.channel, chunk=5))
    here = catalog.captioner("toy:teller")
    assert isinstance(there, CaptionScorer)
    assert isinstance(here, CaptionScorer)
    images = [*pictures(7), np.zeros((4, 4, 3), np.float32)]
    for texts in (["a", "bb", "ccc"], ["a"] * 9, []):
        np.testing.assert_array_equal(there.caption_scores(images, texts), here.caption_scores(images, texts))
    assert there.caption_scores([], ["a"]).shape == (0, 1)


def test_captioner_refuses_bad_images_by_row(served: Served) -> None:
    assert served.captioner is not None
    rows: list[Any] = [*pictures(2), np.zeros((0, 3, 3), np.uint8), np.zeros((4, 4, 3), np.float32)]
    answers = served.captioner.answer(rows, [Question("?", ("a", "b"))] * 4)
    assert [answer.error is None for answer in answers] == [True, True, False, False]
    assert answers == catalog.captioner("toy:teller").answer(rows, [Question("?", ("a", "b"))] * 4)


def assert_same_images(found: list[GeneratedImage], expected: list[GeneratedImage]) -> None:
    assert [image.error for image in found] == [image.error for image in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.pixels is None) == (other.pixels is None)
        if one.pixels is not None:
            assert one.pixels.dtype == np.uint8
            np.testing.assert_array_equal(one.pixels, other.pixels)


@pytest.mark.parametrize("n", [0, 1, 23])
def test_generator_draws_as_in_process(served: Served, n: int) -> None:
    here, generator = catalog.image_generator(RENDERER), served.image_generator
    assert generator is not None
    there = ServedGenerator(RENDERER, generator.channel, chunk=5)
    assert isinstance(there, ImageGenerator)
    assert there.revision == here.revision
    found = there.generate(prompts(n))
    assert_same_images(found, here.generate(prompts(n)))
    assert [image.error is None for image in found] == [i % 4 != 3 for i in range(n)]


def test_single_prompts_are_gathered(served: Served) -> None:
    assert served.image_generator is not None
    channel = Channel(served.image_generator.channel.app, in_flight=40)
    before = len(channel.call("statistics")["batches"])
    found = channel.call_many("generate", [(RENDERER, [request]) for request in prompts(40)])
    batches = channel.call("statistics")["batches"][before:]
    assert sum(batches) == 40
    assert max(batches) > 2
    assert_same_images([image for [image] in found], catalog.image_generator(RENDERER).generate(prompts(40)))


def test_single_questions_are_gathered(served: Served) -> None:
    assert served.captioner is not None
    channel = Channel(served.captioner.channel.app, in_flight=40)
    before = len(channel.call("statistics")["batches"])
    images, question = pictures(40), Question("?", ("a", "b"))
    found = channel.call_many("answer", [("toy:teller", pack([image]), [[question]]) for image in images])
    batches = channel.call("statistics")["batches"][before:]
    # Health checks are no batches.
    assert sum(batches) == 40
    assert max(batches) > 2
    expected = catalog.captioner("toy:teller").answer(images, [question] * 40)
    assert [answer for [[answer]], _ in found] == expected


def test_an_app_that_nobody_asked_for_is_left_asleep(served: Served) -> None:
    assert served.captioner is not None
    assert set(running(["encoder"])) == {served.encoder.channel.app if served.encoder else ""}
    assert served.captioner.channel.app in running(["captioner", "index"])


@pytest.mark.parametrize("n", [0, 1, 23])
def test_classifier_answers_as_in_process(served: Served, n: int) -> None:
    here, there = catalog.classifier("toy:one"), served.classifier("toy:one")
    there.chunk = 5
    assert (there.labels, there.revision) == (here.labels, here.revision)
    assert catalog.description_of(there).facts == ToyClassifier.facts  # what is assumed of it is told as without Serve
    images, keys = pictures(n), [f"{i}.png" for i in range(n)]
    np.testing.assert_array_equal(there.logits(images, keys), here.logits(images, keys))


@pytest.mark.parametrize("n", [0, 1, 23])
def test_index_answers_as_in_process(served: Served, index_path: str, n: int) -> None:
    here, there = catalog.index(index_path), served.index(index_path)
    there.chunk = 5
    assert (there.encoder, there.dimension, there.revision) == (here.encoder, here.dimension, here.revision)
    queries = catalog.encoder("toy:eye").encode_texts([f"query {i}" for i in range(n)])
    found, expected = there.search(queries, 4), here.search(queries, 4)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.similarities, expected.similarities, rtol=1e-6)
    ids = [29, 3, 3, *range(n)]
    assert there.fetch(ids) == here.fetch(ids)
    assert there.metadata(ids) == here.metadata(ids)
    options = served.index(f"faiss:{index_path}?device=cpu")
    np.testing.assert_array_equal(options.search(queries, 4).ids, expected.ids)


def test_handles_work_in_tasks_once_pickled(served: Served) -> None:
    @ray.remote(num_cpus=0.1)
    def elsewhere(roles: bytes, images: list[Pixels]) -> list[Any]:
        encoder, classifier = pickle.loads(roles)
        return [encoder.encode_texts(["x", "y"]), classifier.logits(images, [""] * len(images)), classifier.labels]

    roles, images = (served.encoder, served.classifier("toy:one")), pictures(3)
    texts, logits, labels = ray.get(elsewhere.remote(pickle.dumps(roles), images))
    np.testing.assert_array_equal(texts, catalog.encoder("toy:eye").encode_texts(["x", "y"]))
    np.testing.assert_array_equal(logits, catalog.classifier("toy:one").logits(images, [""] * 3))
    assert labels == ("dark", "light")


def test_an_app_says_how_much_it_wants_at_once(served: Served) -> None:
    """Batches of 50; no autoscaling, and autoscaling to one replica with Serve's own target of 2."""
    assert served.encoder is not None
    assert served.captioner is not None
    assert served.encoder.channel.limits() == Limits(50, 4)
    assert served.captioner.channel.limits() == Limits(50, 4)
    assert served.encoder.calls_at_once == 4


def test_single_requests_are_gathered(served: Served) -> None:
    assert served.encoder is not None
    channel = Channel(served.encoder.channel.app, in_flight=100)
    before = len(channel.call("statistics")["batches"])
    texts = [f"single {i}" for i in range(100)]
    found = channel.call_many("encode_texts", [("toy:eye", [text]) for text in texts])
    batches = channel.call("statistics")["batches"][before:]
    assert sum(batches) == 100
    assert len(batches) < 50
    assert max(batches) > 2
    np.testing.assert_array_equal(np.concatenate(found), catalog.encoder("toy:eye").encode_texts(texts))


def encoded(n: int) -> list[bytes | None]:
    """PNG files, of which every fifth is cut off and every seventh is not there."""
    files: list[bytes | None] = []
    for i, image in enumerate(pictures(n)):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(None if i % 7 == 6 else file.getvalue()[:40] if i % 5 == 4 else file.getvalue())
    return files


@pytest.mark.parametrize("n", [0, 1, 23])
def test_encoded_images_are_answered_as_in_process(served: Served, n: int) -> None:
    """The replica decodes as this process does; a file that cannot be decoded has the same reason."""
    files, keys = encoded(n), [f"{i}.png" for i in range(n)]
    assert served.encoder is not None
    assert served.captioner is not None
    classifier = served.classifier("toy:one")
    encoder = ServedEncoder("toy:eye", served.encoder.channel, chunk=5)
    captioner = ServedCaptioner("toy:teller", served.captioner.channel, chunk=5)
    classifier.chunk = 5
    for found, expected in (
        tuple(
            steps.DecodedOnce(files).logits(range(len(files)), keys, one)
            for one in (classifier, catalog.classifier("toy:one"))
        ),
        (steps.embeddings(files, encoder), steps.embeddings(files, catalog.encoder("toy:eye"))),
    ):
        assert found[1] == expected[1]
        good = [i for i, error in enumerate(found[1]) if error is None]
        np.testing.assert_array_equal(found[0][good], expected[0][good])
    questions = [[Question("?", ("a", "b")), Question("!", ("c", "d", "e"))][: 1 + i % 2] for i in range(n)]
    here = catalog.captioner("toy:teller")
    assert steps.answers(files, questions, captioner) == steps.answers(files, questions, here)
