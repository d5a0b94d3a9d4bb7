"""Models behind real Serve: the same answers in the same order, gathered, several a replica, through faults."""

from __future__ import annotations

import io
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from PIL import Image
from ray import serve
from ray.serve.exceptions import BackPressureError

from c2b_ray.errors import ServiceError, SourceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.index import build as faiss_build
from c2b_ray.roles import (
    Captioner,
    CaptionScorer,
    ChatReply,
    ChatRequest,
    GeneratedImage,
    GenerationRequest,
    ImageGenerator,
    Message,
    Pixels,
    Question,
)
from c2b_ray.serving.caption_scores import scoring
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import Served, ensure, running
from c2b_ray.serving.handles import ServedCaptioner, ServedEncoder
from c2b_ray.serving.limits import Limits
from c2b_ray.serving.payload import pack
from c2b_ray.serving.writing import ServedGenerator, ServedLanguageModel
from c2b_ray.steps import encoded as steps

RENDERER = "world:renderer?mislabel=0.2"


def asked(text: str, seed: int = 0) -> ChatRequest:
    return ChatRequest((Message("user", text),), seed=seed)


def pictures(n: int) -> list[Pixels]:
    """Of different sizes, so that a batch is no rectangle."""
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, (4 + i % 3, 5, 3), dtype=np.uint8) for i in range(n)]


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
    assert (there.dimension, there.revision) == (here.dimension, here.revision)
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


def prompts(n: int) -> list[GenerationRequest]:
    """One in four names nothing that can be drawn."""
    things = ("bus at night", "red mug", "boat", "zebra")
    return [GenerationRequest(f"a photo of a {things[i % 4]}", seed=2**33 * i) for i in range(n)]


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


def test_a_replica_holds_the_classifiers_used_last(served: Served) -> None:
    images = pictures(2)

    def answer(name: str) -> None:
        there = served.classifier(name).logits(images, ["", ""])
        np.testing.assert_array_equal(there, catalog.classifier(name).logits(images, ["", ""]))

    for name in ("toy:a", "toy:bb", "toy:a", "toy:ccc"):
        answer(name)
    statistics = Channel("classifiers").call("statistics")
    assert statistics["models"] == ["toy:a", "toy:ccc"]
    with pytest.raises(SpecError):
        _ = served.classifier("tim:bb").labels
    # A misspelt name has thrown out nobody.
    assert Channel("classifiers").call("statistics")["models"] == statistics["models"]


def test_classifiers_make_room_by_the_bytes_of_their_weights(served: Served) -> None:
    images = pictures(2)
    for name in ("toy:a", "toy:heavy", "toy:heavy too"):  # 60 MB each of the latter, of 100 MB; two by their number
        served.classifier(name).logits(images, ["", ""])
    statistics = Channel("classifiers").call("statistics")
    assert statistics["models"] == ["toy:heavy too"]
    assert statistics["bytes"] == 60 * 10**6


def test_a_classifier_that_loads_keeps_no_other_from_answering(served: Served) -> None:
    images, loaded = pictures(2), threading.Event()
    served.classifier("toy:a").logits(images, ["", ""])

    def load() -> None:
        _ = served.classifier("toy:slow to load").labels
        loaded.set()

    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(0.5)
    for _ in range(3):
        served.classifier("toy:a").logits(images, ["", ""])
    assert not loaded.is_set()
    thread.join()


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


def test_an_image_that_was_answered_comes_from_memory_for_the_same_tenant_and_ray_shows_it(served: Served) -> None:
    images, channel = pictures(7), Channel("classifiers")
    classifier, other = served.classifier("toy:kept"), served.classifier("toy:kept")
    other.owner = "tenant_b"
    first = classifier.logits(images, [""] * 7)
    before = sum(channel.call("statistics")["batches"])
    again = classifier.logits(images[::-1], [""] * 7)
    assert again[::-1].tobytes() == first.tobytes()
    assert sum(channel.call("statistics")["batches"]) == before
    assert other.logits(images, [""] * 7).tobytes() == first.tobytes()
    assert sum(channel.call("statistics")["batches"]) == before + 7
    hits = exported("ray_c2b_cached_answers_total", 'application="classifiers"', 'outcome="hit"', least=7)
    fills = exported("ray_c2b_batch_fill_count", 'application="classifiers"', least=2)
    assert hits >= 7
    assert fills >= 2


def exported(name: str, *labels: str, least: float) -> float:
    """The sum of a metric's series as Ray shows them, once it is so large; replicas report every ten seconds."""
    url, value = f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics", 0.0
    ends = time.monotonic() + 60
    while value < least and time.monotonic() < ends:
        time.sleep(1)
        lines = [line for line in httpx.get(url).text.splitlines() if line.startswith(name)]
        value = sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))
    return value


def test_single_requests_of_two_classifiers_are_answered_by_their_own(served: Served) -> None:
    images = pictures(20)
    channel = Channel("classifiers", in_flight=20)
    results: dict[str, list[Any]] = {}

    def ask(name: str) -> None:
        results[name] = channel.call_many("logits", [(pack([image]), [""]) for image in images], model_id=name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("toy:a", "toy:ccc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, found in results.items():
        expected = catalog.classifier(name).logits(images, [""] * 20)
        np.testing.assert_array_equal(np.concatenate([rows for rows, _ in found]), expected)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda s: s.classifier("nope:x").labels, SpecError, "no classifier has the scheme 'nope'"),
        (lambda s: s.classifier("toy:x?opt=1").labels, SpecError, "unknown option 'opt'"),
        (lambda s: s.classifier("toy:nan").labels, WeightsError, "weights are damaged"),
        (lambda s: s.index("/no/such/index").dimension, SourceError, "/no/such/index"),
        (lambda s: s.language_model.chat([asked("fail")]), SourceError, "no such reply"),
        (lambda s: s.language_model.chat([asked("crash")]), ServiceError, "ZeroDivisionError: a bug"),
        (lambda s: ServedCaptioner("toy:x", s.captioner.channel).revision, ServiceError, "serves 'toy:teller'"),
        (
            lambda s: ServedGenerator("world:renderer", s.image_generator.channel).generate(prompts(2)),
            ServiceError,
            "serves 'world:renderer",
        ),
        (lambda s: ServedEncoder("toy:other", s.encoder.channel).dimension, ServiceError, "serves 'toy:eye'"),
        (lambda s: ServedEncoder("toy:other", s.encoder.channel).encode_texts(["x"]), ServiceError, "serves 'toy:eye'"),
        (lambda s: ServedEncoder("toy:eye", Channel("nobody")).dimension, ServiceError, "no Serve app 'nobody'"),
    ],
)
def test_errors_arrive_as_themselves(
    served: Served, ask: Callable[[Served], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        ask(served)
    assert type(raised.value) is error


def test_a_full_queue_is_waited_out(served: Served) -> None:
    assert served.language_model is not None
    channel = Channel(served.language_model.channel.app, in_flight=20)
    handle = serve.get_app_handle(channel.app).chat
    responses = [handle.remote("toy:talker", [asked("nap", seed)]) for seed in range(20)]
    refused = 0
    for response in responses:
        try:
            response.result()
        except BackPressureError:
            refused += 1
    assert refused > 0
    replies = channel.call_many("chat", [("toy:talker", [asked("nap", seed)]) for seed in range(20)])
    assert [reply.text for [reply] in replies] == [f"nap {seed}" for seed in range(20)]


def test_a_killed_replica_is_replaced_and_the_call_made_again(served: Served) -> None:
    model = served.language_model
    assert model is not None
    pid = int(model.chat([asked("pid")])[0].text)
    killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
    killer.start()
    replies = model.chat([asked("slow", 1), asked("slow", 2)])
    killer.join()
    assert [reply.text for reply in replies] == ["slow 1", "slow 2"]
    assert int(model.chat([asked("pid")])[0].text) != pid


def test_apps_are_shared_by_model_and_stopped_by_who_started_them(served: Served, placement: Path) -> None:
    assert served.encoder is not None
    with ensure(encoder="toy:eye", classifiers=True, placement=placement) as again:
        assert again.started == []
        assert again.encoder is not None
        assert again.encoder.channel.app == served.encoder.channel.app
    before = running()
    assert before[served.encoder.channel.app] == "toy:eye"
    replies: list[ChatReply] = []
    with ensure(language_model="toy:other", placement=placement) as other:
        model = other.language_model
        assert model is not None
        assert running() == {**before, model.channel.app: "toy:other"}
        assert other.started == [model.channel.app]
        last = threading.Thread(target=lambda: replies.extend(model.chat([asked("slow", 1), asked("slow", 2)])))
        last.start()
        time.sleep(0.5)
    last.join()
    # What was asked before the end is answered before the end.
    assert [reply.text for reply in replies] == ["slow 1", "slow 2"]
    assert running() == before


def test_a_model_that_cannot_be_loaded_is_said_to_be_so(served: Served, placement: Path) -> None:
    with pytest.raises(SpecError, match="no encoder has the scheme 'too'"):
        ensure(encoder="too:x", placement=placement)
    with pytest.raises(WeightsError, match="toy:damaged: these weights are damaged") as raised:
        ensure(language_model="toy:damaged", placement=placement)
    assert raised.value.location == "/models/toy.bin"  # every field, though Serve hands on text alone
    assert raised.value.app is not None
    assert "toy:damaged" not in running().values()
