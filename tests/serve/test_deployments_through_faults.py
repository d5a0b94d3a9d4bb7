"""Models behind real Serve, through faults: errors, full queues, killed replicas, apps that start and stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ray import serve
from ray.serve.exceptions import BackPressureError
from requests_of_apps import asked, pictures, prompts

from c2b_ray.audits.kit.loaders import load
from c2b_ray.config.placement import Computing
from c2b_ray.errors import ServiceError, SourceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.roles import ChatReply
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import Served, ensure, running
from c2b_ray.serving.handles import ServedCaptioner, ServedEncoder, ServedGenerator


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


def test_classifiers_compute_as_the_placement_says_in_an_app_of_their_own(served: Served, placement: Path) -> None:
    spec, images = "world:resnet-control-0", pictures(3)
    exactly = catalog.load("classifier", spec)
    how = {"classifiers": Computing("bf16")}
    with ensure(classifiers=True, placement=placement, computing=how) as fast:
        with ensure(classifiers=True, placement=placement, computing=how) as again:
            assert again.classifiers == fast.classifiers != served.classifiers
            assert again.started == []
        model = fast.classifier(spec)
        here = load("classifier", how["classifiers"], spec)
        assert model.revision == here.revision != exactly.revision
        np.testing.assert_allclose(model.logits(images, [""] * 3), here.logits(images, [""] * 3), atol=0.05)
    assert fast.classifiers not in running()
    how = {"classifiers": Computing(decode="gpu")}
    with (
        ensure(classifiers=True, placement=placement, computing=how) as no_gpu,
        pytest.raises(SpecError, match="decode: gpu` needs a GPU"),
    ):
        _ = no_gpu.classifier(spec).labels
