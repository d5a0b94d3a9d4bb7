"""A channel's patience, against a handle that fails on purpose. No cluster is started."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from tenacity import wait_none

from c2b_ray.errors import Argument, ConfigError, ServiceError, SpecError, WeightsError, naming
from c2b_ray.serving import channel as channel_module
from c2b_ray.serving.channel import ATTEMPTS, Channel, to_text
from c2b_ray.serving.meters import AppStates


class Response:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.cancelled = False

    def result(self, timeout_s: float) -> Any:
        return self.answer()

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """Answers what `script` says, in the order of the asking, and notes what was asked."""

    def __init__(self, script: Callable[[int, Any], Any]) -> None:
        self.script = script
        self.asked: list[tuple[str, str, Any]] = []
        self.responses: list[Response] = []
        self._lock = threading.Lock()

    def options(self, method_name: str, multiplexed_model_id: str) -> Handle:
        self._names = (method_name, multiplexed_model_id)
        return self

    def remote(self, argument: Any) -> Response:
        with self._lock:
            number = len(self.asked)
            self.asked.append((*self._names, argument))
            self.responses.append(Response(lambda: self.script(number, argument)))
            return self.responses[-1]


def failing(times: int, error: Exception) -> Callable[[int, Any], Any]:
    def script(number: int, argument: Any) -> Any:
        if number < times:
            raise error
        return argument

    return script


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "wait_random_exponential", lambda **_: wait_none())
    monkeypatch.setattr(channel_module, "RESEND_S", 0.001)


def to(handle: Any, **options: Any) -> Channel:
    return Channel("app", handle=handle, **options)


def test_answers_keep_the_order_of_the_calls() -> None:
    def slower_first(_: int, argument: int) -> int:
        time.sleep((10 - argument) / 500)
        return argument

    handle = Handle(slower_first)
    assert to(handle, in_flight=4).call_many("m", [(i,) for i in range(10)], model_id="x") == list(range(10))
    assert {(method, model) for method, model, _ in handle.asked} == {("m", "x")}


def test_no_calls_need_no_app() -> None:
    assert Channel("nobody").call_many("m", []) == []


def test_a_full_queue_is_waited_out() -> None:
    assert to(Handle(failing(30, BackPressureError(5, 5)))).call("m", 1) == 1


def test_a_queue_that_stays_full_is_an_error() -> None:
    with pytest.raises(ServiceError, match="no place in its queue"):
        to(Handle(failing(10**9, BackPressureError(5, 5))), patience_s=0.01).call("m", 1)


def test_a_lost_replica_is_asked_again() -> None:
    assert to(Handle(failing(ATTEMPTS - 1, ActorDiedError()))).call("m", 1) == 1


def test_a_question_that_kills_every_replica_is_an_error() -> None:
    handle = Handle(failing(10**9, ActorDiedError()))
    with pytest.raises(ServiceError, match=f"lost {ATTEMPTS} replicas"):
        to(handle).call("m", 1)
    assert len(handle.asked) == ATTEMPTS


def raised_remotely(error: Exception) -> Exception:
    return RayTaskError("f", "a remote traceback", error).as_instanceof_cause()


def test_our_errors_arrive_as_themselves_at_once() -> None:
    handle = Handle(failing(1, raised_remotely(SpecError("names nothing"))))
    with pytest.raises(SpecError) as raised:
        to(handle).call("m", 1)
    assert (type(raised.value), str(raised.value), len(handle.asked)) == (SpecError, "names nothing", 1)


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), TimeoutError("in the model")])
def test_other_errors_of_a_model_are_the_services(error: Exception) -> None:
    with pytest.raises(ServiceError, match=f"failed in m: {type(error).__name__}: {error}"):
        to(Handle(failing(1, raised_remotely(error)))).call("m", 1)


def test_every_field_of_our_errors_arrives_and_the_app_is_named() -> None:
    remedy = naming("name one with ", Argument.CLASS)
    raised = ConfigError("images.index", "absent", location="s3://b/audit.yaml", remedy=remedy)
    raised.run = "runs/1"
    with pytest.raises(ConfigError) as error:
        to(Handle(failing(1, raised_remotely(raised)))).call("m", 1)
    fields = {"field": "images.index", "location": "s3://b/audit.yaml", "run": "runs/1", "app": "app"}
    assert vars(error.value) == {**fields, "remedy": remedy, "arguments": ()}


class Overview:
    """A look at an app, as `serve.status` gives it."""

    def __init__(self, status: str, replicas: dict[str, int], message: str = "said why") -> None:
        self.status, self.message, self.replica_states = status, message, replicas
        self.deployments = {"D": self}


def watching(*looks: Overview | None) -> AppStates:
    """The controller's answers in their order, the last of them for good."""
    answers = iter(looks)
    last: list[Overview | None] = []

    def ask() -> Any:
        last[:] = [next(answers, *last)]
        return type("Status", (), {"applications": {} if last[0] is None else {"app": last[0]}})

    return AppStates(ask, every_s=0.0)


WELL = Overview("RUNNING", {"RUNNING": 1})


def test_an_app_that_is_redeployed_is_waited_for() -> None:
    handle = Handle(failing(5, DeploymentUnavailableError("d")))  # type: ignore[arg-type]
    looks = watching(None, Overview("DEPLOYING", {"STARTING": 1}), Overview("DEPLOYING", {}), WELL)
    assert to(handle, watch=looks).call("m", 1) == 1
    assert len(handle.asked) == 6


@pytest.mark.parametrize(
    ("looks", "message"),
    [
        ([None], "app 'app' was deleted while it was in use"),
        ([Overview("DEPLOY_FAILED", {})], "is DEPLOY_FAILED and has had no replica for 0 s: said why"),
    ],
)
def test_an_app_that_only_somebody_can_bring_back_is_waited_for_no_longer_than_the_grace(
    looks: list[Overview | None], message: str
) -> None:
    handle = Handle(failing(10**9, DeploymentUnavailableError("d")))  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match=message) as error:
        to(handle, watch=watching(*looks), grace_s=0.02).call("m", 1)
    assert error.value.app == "app"
    assert len(handle.asked) > 1  # more than one attempt, within the grace


def test_what_a_constructor_raised_is_the_error_of_an_app_that_failed_to_deploy() -> None:
    why = WeightsError("model.bin: a pickle", location="/models/model.bin")
    failed = Overview("DEPLOY_FAILED", {}, f"Traceback\n{to_text(why)}\n  more of it")
    handle = Handle(failing(10**9, DeploymentUnavailableError("d")))  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match=r"model\.bin: a pickle") as error:
        to(handle, watch=watching(failed), grace_s=0.0).call("m", 1)
    assert (error.value.location, error.value.app) == ("/models/model.bin", "app")


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (None, "was deleted while it was in use"),
        (Overview("DEPLOY_FAILED", {}), "is DEPLOY_FAILED and has had no replica for 0 s: said why"),
        (Overview("UNHEALTHY", {"STARTING": 1}), "is UNHEALTHY and has had no replica"),
    ],
)
def test_a_wait_for_an_app_without_replicas_ends(app: Overview | None, message: str) -> None:
    handle = Handle(failing(10**9, TimeoutError()))
    with pytest.raises(ServiceError, match=message):
        to(handle, patience_s=0.0, watch=watching(app)).call("m", 1)
    assert handle.responses[0].cancelled


def test_a_busy_app_is_waited_for() -> None:
    waits = iter([TimeoutError()] * 20)

    def slow(_: int, argument: Any) -> Any:
        for error in waits:
            raise error
        return argument

    assert to(Handle(slow), patience_s=0.0, watch=watching(WELL)).call("m", 1) == 1


def test_pending_calls_share_one_look_at_the_controller() -> None:
    looks = 0

    def ask() -> Any:
        nonlocal looks
        looks += 1
        time.sleep(0.02)  # long enough that all others ask meanwhile
        return type("Status", (), {"applications": {"app": WELL}})

    waits = {i: iter([TimeoutError()] * 3) for i in range(30)}

    def slow(_: int, argument: int) -> int:
        for error in waits[argument]:
            raise error
        return argument

    channel = to(Handle(slow), in_flight=30, watch=AppStates(ask, every_s=30.0))
    assert channel.call_many("m", [(i,) for i in range(30)]) == list(range(30))
    assert looks == 1


def test_the_first_error_calls_the_others_off() -> None:
    others = threading.Event()

    def script(_: int, argument: int) -> Any:
        if argument == 0:
            others.wait(20)
            raise raised_remotely(SpecError("names nothing"))
        others.set()
        time.sleep(0.001)
        raise TimeoutError

    handle = Handle(script)
    with pytest.raises(SpecError):
        to(handle, in_flight=2, watch=watching(WELL)).call_many("m", [(0,), (1,)])
    deadline = time.monotonic() + 20
    while not any(response.cancelled for response in handle.responses) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [response.cancelled for response in handle.responses] == [False, True]


def test_it_can_be_pickled_and_leaves_its_handle_behind() -> None:
    again = pickle.loads(pickle.dumps(to(Handle(failing(0, ValueError())), in_flight=3)))
    assert (again.app, again.in_flight, again._handle) == ("app", 3, None)


def test_without_a_cluster_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module.ray, "is_initialized", lambda: False)
    with pytest.raises(ServiceError, match="connected to no Ray cluster"):
        Channel("app").call("m", 1)
