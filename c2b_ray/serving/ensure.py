"""Decides which Serve apps a run uses: declared apps, or apps that it starts for itself and that end with it.

A cluster is shared where this process did not start it (`ray start`, RAY_ADDRESS, KubeRay). There, apps are declared:
somebody deploys them (`serve deploy`), and a run uses those that serve exactly its models, stops with an error where
one is missing, and never starts or ends any. On a cluster that this process started, and where C2B_SERVE_APPS=own is
set, a run starts the apps that are missing. Such apps are leased: runs with the same models share them, and
they end with their last user.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from uuid import uuid4

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve import RunTarget
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ServeApplicationSchema

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import C2BError, ConfigError, ServiceError
from c2b_ray.serving.app import GPU, LAPTOP, OF_ONE_MODEL, computing_of, on_gpu, placements, targets
from c2b_ray.serving.channel import APPS, GRACE_S, PATIENCE_S, Channel, from_text
from c2b_ray.serving.handles import (
    ServedCaptioner,
    ServedClassifier,
    ServedEncoder,
    ServedGenerator,
    ServedIndex,
    ServedLanguageModel,
)
from c2b_ray.serving.meters import ABSENT, AppState, state_of
from c2b_ray.tables import content_id

# Leases of the apps that runs started for themselves: an app ends with its last user, however that user ends. A user is
# a lease of a Ray job, which is a driver process: Ray notices its death, also by SIGKILL or with its node, and a driver
# that only hangs keeps its apps. A detached actor holds the leases, and copies them to the cluster's key-value store,
# where they outlive it.


NAME, NAMESPACE, KEY = "app-leases", "c2b-ray", "app-leases"
REAP_EVERY_S = 5.0
IDLE_S = 60.0
_ATTEMPTS = 5


@dataclass(frozen=True)
class Lease:
    """One user: the Ray job of a driver, and the number of the user within it."""

    job: str
    number: str = field(default_factory=lambda: uuid4().hex)


class AppUsers:
    """The users of each app. `delete` ends an app and returns once it has ended; `save` stores what `book` returns.

    Methods may be called from several threads at once.
    """

    def __init__(
        self, delete: Callable[[str], None], save: Callable[[dict[str, list[list[str]]]], None], kept: dict[str, Any]
    ) -> None:
        self._delete = delete
        self._save = save
        self._users = {app: {Lease(*lease) for lease in leases} for app, leases in kept.items()}
        self._ending: set[str] = set()
        self._changed = threading.Condition()

    def take(self, app: str, lease: Lease) -> bool:
        """Adds a user. Returns True where it is the only one and so has to start the app. Waits while the app ends."""
        with self._changed:
            self._changed.wait_for(lambda: app not in self._ending)
            users = self._users.setdefault(app, set())
            first = not users - {lease}
            users.add(lease)
            self._save(self.book())
            return first

    def give_back(self, app: str, lease: Lease) -> None:
        """Removes a user; the app ends with its last one."""
        with self._changed:
            users = self._users.get(app, set())
            if lease not in users:
                return
            users.remove(lease)
            if users:
                self._save(self.book())
                return
            self._ending.add(app)
        try:
            self._delete(app)
        finally:
            with self._changed:
                self._ending.discard(app)
                if not self._users[app]:
                    del self._users[app]
                self._save(self.book())
                self._changed.notify_all()

    def reap(self, living: Collection[str]) -> None:
        """Removes the users whose jobs are not among `living`."""
        with self._changed:
            expired = [(app, lease) for app, users in self._users.items() for lease in users if lease.job not in living]
        for app, lease in expired:
            self.give_back(app, lease)

    def book(self) -> dict[str, list[list[str]]]:
        """Returns the users of each app in a form that JSON can hold."""
        return {app: sorted([lease.job, lease.number] for lease in users) for app, users in self._users.items()}


class AppUsersActor:
    """The actor: the leases of this cluster, and a thread that removes those of jobs that have ended."""

    def __init__(self, reap_every_s: float) -> None:
        stored = _store()._internal_kv_get(KEY, namespace=NAMESPACE)
        self._book = AppUsers(_delete, _save, json.loads(stored) if stored else {})
        threading.Thread(target=self._reap, args=(reap_every_s,), daemon=True).start()

    def take(self, app: str, lease: Lease) -> bool:
        return self._book.take(app, lease)

    def give_back(self, app: str, lease: Lease) -> None:
        self._book.give_back(app, lease)

    def apps(self) -> list[str]:
        return sorted(self._book.book())

    def _reap(self, every_s: float) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(every_s)
            try:
                jobs = ray._private.state.jobs()  # type: ignore[no-untyped-call]
                self._book.reap({job["JobID"] for job in jobs if not job["IsDead"]})
            except (RayError, RayServeException, OSError, RuntimeError):  # the cluster's head is away: later
                continue
            idle_since = time.monotonic() if self._book.book() else idle_since
            if time.monotonic() - idle_since > IDLE_S:  # who comes now starts another keeper
                ray.kill(ray.get_actor(NAME, namespace=NAMESPACE))


def take(apps: Collection[str], lease: Lease, reap_every_s: float = REAP_EVERY_S) -> list[str]:
    """Adds this user to the apps. Returns the apps of which it is the only user, and which it has to start."""
    return [app for app in apps if _ask("take", app, lease, reap_every_s=reap_every_s)]


def give_back(apps: Collection[str], lease: Lease) -> None:
    """Ends this user's leases. Where one was an app's last, the app has ended when this returns."""
    for app in apps:
        _ask("give_back", app, lease)


def leased() -> list[str]:
    """Returns the apps that end with their last user."""
    try:
        keeper = ray.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        return []
    apps: list[str] = ray.get(keeper.apps.remote())
    return apps


def lease_here() -> Lease:
    return Lease(ray.get_runtime_context().get_job_id())


def _ask(method: str, *args: Any, reap_every_s: float = REAP_EVERY_S) -> Any:
    for attempt in range(_ATTEMPTS):
        keeper = (
            ray.remote(AppUsersActor)
            .options(
                name=NAME,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=64,
                max_restarts=-1,
            )
            .remote(reap_every_s)
        )
        try:
            return ray.get(getattr(keeper, method).remote(*args))
        except RayActorError:  # its node is lost; it starts anew on another one, with the same book
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(1.0)
    raise AssertionError


def _store() -> Any:
    from ray.experimental import internal_kv

    return internal_kv


def _save(book: dict[str, list[list[str]]]) -> None:
    _store()._internal_kv_put(KEY, json.dumps(book), overwrite=True, namespace=NAMESPACE)


def _delete(app: str) -> None:
    try:
        serve.delete(app)
    except RayServeException:  # Serve itself has ended, and with it the app
        return


VARIABLE = "C2B_SERVE_APPS"
Tenancy = Literal["declared", "leased", "alone"]
"""`alone`: started here, on a cluster that ends with this process and its apps with it; they need no lease."""


NAMED = (*OF_ONE_MODEL, "classifiers")
"""Kinds of apps of which there may be several, named after what they serve."""


@dataclass
class Served:
    """Models behind Serve, and the apps that they use. `stop` ends the apps that nobody else uses."""

    language_model: ServedLanguageModel | None = None
    encoder: ServedEncoder | None = None
    captioner: ServedCaptioner | None = None
    image_generator: ServedGenerator | None = None
    started: list[str] = field(default_factory=list)
    leased: list[str] = field(default_factory=list)
    lease: Lease | None = None
    classifiers: str = APPS["classifiers"]
    computing: Mapping[str, Computing] = field(default_factory=dict)

    def classifier(self, spec: str) -> ServedClassifier:
        """Returns a handle to any classifier of the catalogue; needs the classifiers' app."""
        return ServedClassifier(spec, Channel(self.classifiers), computing=self.computing.get("classifiers", UNSAID))

    def index(self, path: str) -> ServedIndex:
        """Returns a handle to the index at a path that the cluster can read; needs the indexes' app."""
        return ServedIndex(path)

    def stop(self) -> None:
        """Returns the leases. An app ends with its last lease, once it has answered its requests."""
        if self.lease is not None:
            give_back(self.leased, self.lease)
        elif self.started:
            applications = serve.status().applications
            with ThreadPoolExecutor() as pool:  # each waits for its replicas to drain
                list(pool.map(serve.delete, [name for name in self.started if name in applications]))
        self.started, self.leased = [], []

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def tenancy_here() -> Tenancy:
    """Returns `leased` where C2B_SERVE_APPS is `own`, or where it is not set and this process started the cluster; else
    `declared`."""
    choice = os.environ.get(VARIABLE)
    if choice not in (None, "", "own", "declared"):
        raise ConfigError(VARIABLE, f"{choice!r} is neither own nor declared")
    if choice:
        return "leased" if choice == "own" else "declared"
    node = ray._private.worker._global_node  # Ray has no public way to say who started a cluster
    return "leased" if node is not None and node.is_head() else "declared"


def running(kinds: Collection[str] = tuple(APPS)) -> dict[str, str | None]:
    """Returns every app of these kinds that answers and whose model computes as its spec says, and the spec; None where
    requests name their models.

    It calls each app, and an app that has scaled to no replica starts one for the call; so pass only the kinds you
    need.
    """
    return {name: app.spec for name, app in _running(kinds).items() if app.computing in (None, UNSAID)}


@dataclass(frozen=True)
class _App:
    """A running app: its kind, and the spec of its model and how that computes; None where requests name the models."""

    kind: str
    spec: str | None = None
    computing: Computing | None = None


def _running(kinds: Collection[str]) -> dict[str, _App]:
    apps = {}
    for name, app in serve.status().applications.items():
        kind = next((kind for kind in APPS if _is_of(kind, name)), None)
        if kind is None or app.status != "RUNNING" or kind not in kinds:
            continue
        facts = Channel(name).call("describe") if kind in OF_ONE_MODEL else {}
        computing = facts.get("computing", UNSAID) if facts else None
        apps[name] = _App(kind, facts.get("model"), computing)
    return apps


def ensure(
    *,
    language_model: str | None = None,
    encoder: str | None = None,
    captioner: str | None = None,
    image_generator: str | None = None,
    classifiers: bool = False,
    index: bool = False,
    placement: Path = LAPTOP,
    tenancy: Tenancy | None = None,
    computing: Mapping[str, Computing] = MappingProxyType({}),
) -> Served:
    """Returns handles of the models behind Serve, by apps that serve exactly these models.

    `tenancy`: which apps may be used; None: `tenancy_here`. Apps that a run starts are named after their model, so that
    runs with different models do not share one, and are placed as `placement` places their kind. `computing`: how the
    models of a kind compute, where the run's placement says it. Raises ServiceError where apps are declared and one is
    missing, or computes in another way; SpecError and WeightsError if a model cannot be loaded, as in this process.
    """
    if not ray.is_initialized():
        raise ServiceError("Serve needs a Ray cluster: call ray.init() first")
    models = {
        "language_model": language_model,
        "encoder": encoder,
        "captioner": captioner,
        "image_generator": image_generator,
    }
    specs = {kind: spec for kind, spec in models.items() if spec}
    multi: dict[str, None] = {kind: None for kind, use in (("classifiers", classifiers), ("index", index)) if use}
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # what it starts and connects to is of no use to a person
    effective_tenancy = tenancy or tenancy_here()
    find_apps = _declared if effective_tenancy == "declared" else _on_demand
    apps, served = find_apps({**specs, **multi}, computing, placement, effective_tenancy)
    served.classifiers, served.computing = apps.get("classifiers", served.classifiers), computing
    computing_of_kind = {kind: computing.get(kind, UNSAID) for kind in APPS}
    if language_model:
        served.language_model = ServedLanguageModel(language_model, Channel(apps["language_model"]))
    if encoder:
        served.encoder = ServedEncoder(encoder, Channel(apps["encoder"]), computing=computing_of_kind["encoder"])
    if captioner:
        served.captioner = ServedCaptioner(
            captioner, Channel(apps["captioner"]), computing=computing_of_kind["captioner"]
        )
    if image_generator:
        channel = Channel(apps["image_generator"])
        served.image_generator = ServedGenerator(
            image_generator, channel, computing=computing_of_kind["image_generator"]
        )
    return served


def _declared(
    specs: Mapping[str, str | None], computing: Mapping[str, Computing], placement: Path, tenancy: Tenancy
) -> tuple[dict[str, str], Served]:
    """Returns the app of each kind among the deployed ones. Apps of other runs are not used: they would end with those
    runs."""
    started = time.monotonic()
    while True:
        others = set(leased())
        running_apps = {name: app for name, app in _running(tuple(specs)).items() if name not in others}
        apps = {
            kind: _declared_for(kind, spec, computing.get(kind, UNSAID), running_apps) for kind, spec in specs.items()
        }
        missing = {kind: spec for kind, spec in specs.items() if apps[kind] is None}
        if not missing:
            return {kind: name for kind, name in apps.items() if name is not None}, Served()
        if not _deploying(missing, others) or time.monotonic() - started > PATIENCE_S:
            raise _refusal(missing, running_apps)
        time.sleep(2)


def _declared_for(kind: str, spec: str | None, computing: Computing, running_apps: Mapping[str, _App]) -> str | None:
    """Returns the app of a kind that serves this model, best one that computes as it has to; where none does, the app's
    handle names the difference."""
    names = [name for name, app in running_apps.items() if app.kind == kind and app.spec == spec]
    if spec is None:
        names = [name for name in names if name == APPS[kind]]
    compatible = [name for name in names if computing.contradicts(running_apps[name].computing or UNSAID) is None]
    return next(iter([*compatible, *names]), None)


def _on_demand(
    specs: Mapping[str, str | None], computing: Mapping[str, Computing], placement: Path, tenancy: Tenancy
) -> tuple[dict[str, str], Served]:
    """Returns the apps that already serve the models and have them compute in the same way, and starts new ones for the
    rest."""
    running_apps, leased_names, schemas = _running(tuple(specs)), set(leased()), _placed(placement)
    apps = {}
    for kind, spec in specs.items():
        app_computing = computing.get(kind, UNSAID).over(computing_of(schemas.get(APPS[kind])))
        matches = (name for name, app in running_apps.items() if spec and app == _App(kind, spec, app_computing))
        apps[kind] = next(matches, _app_name(kind, spec, app_computing))
    needed = {kind: name for kind, name in apps.items() if name not in running_apps or name in leased_names}
    # A misspelt spec or placement is refused before anything starts.
    app_targets = targets(needed, dict(specs), schemas, computing) if needed else []
    served = Served()
    try:
        if tenancy == "leased" and needed:
            served.lease, served.leased = lease_here(), list(needed.values())
            served.started = take(served.leased, served.lease)
        else:
            served.started = list(needed.values())
        _deploy([target for target in app_targets if target.name in served.started])
        _await_running(set(needed.values()))
    except BaseException:
        served.stop()
        raise
    return apps, served


def _placed(placement: Path) -> dict[str, ServeApplicationSchema]:
    """Returns how the placement places each kind. Without one of the user's, models of images take a GPU where a node
    has one, and the CPUs beside it decode."""
    schemas = placements(placement)
    gpu_nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]  # type: ignore[no-untyped-call]
    if placement == LAPTOP and gpu_nodes:
        schemas.update(on_gpu(placements(GPU), max(int(node.get("CPU", 1)) for node in gpu_nodes)))
    return schemas


def _deploying(kinds: Collection[str], others: Collection[str]) -> bool:
    """Returns whether an app of these kinds, which may be the missing one, is about to run."""
    apps = serve.status().applications.items()
    return any(
        app.status == "DEPLOYING" and name not in others and any(_is_of(kind, name) for kind in kinds)
        for name, app in apps
    )


def _is_of(kind: str, app: str) -> bool:
    return app == APPS[kind] or (kind in NAMED and app.startswith(f"{APPS[kind]}-"))


def _app_name(kind: str, spec: str | None, computing: Computing) -> str:
    """Returns the name of an app that a run starts: the same for the same model that computes in the same way."""
    identity = [] if spec is None else [spec]
    if computing != UNSAID:
        identity.append(repr(computing))
    return f"{APPS[kind]}-{content_id(*identity)[:8]}" if identity else APPS[kind]


def _refusal(missing: Mapping[str, str | None], running_apps: Mapping[str, _App]) -> ServiceError:
    missing_apps = []
    for kind, spec in missing.items():
        alternatives = [f"{name!r} serves {app.spec!r}" for name, app in running_apps.items() if app.kind == kind]
        requirement = (
            f"an app {APPS[kind]!r}" if spec is None else f"an app {APPS[kind]!r} or '{APPS[kind]}-…' with {spec!r}"
        )
        missing_apps.append(requirement + (f" ({', '.join(alternatives)})" if alternatives else ""))
    return ServiceError(
        f"this cluster is shared, and lacks {'; '.join(missing_apps)}: deploy it with `serve deploy FILE.yaml`"
        " (deployments/cluster.yaml is an example), or set C2B_SERVE_APPS=own, and the run starts and ends apps of its"
        " own",
        app=APPS[next(iter(missing))],
    )


def _deploy(new: list[RunTarget]) -> None:
    """Starts apps that nobody else starts: deploying an app again would restart its replicas."""
    if not new:
        return
    if not serve.status().applications:
        serve.start(proxy_location="Disabled")  # no HTTP: these apps are called through handles
    serve.run_many(new, wait_for_applications_running=False)


def _await_running(names: set[str]) -> None:
    started = time.monotonic()
    while names:
        apps = serve.status().applications
        waited = time.monotonic() - started
        for name in sorted(names):
            state = state_of(apps[name]) if name in apps else AppState(ABSENT)
            # Another run may have taken the lease a moment ago, and be about to deploy the app.
            limit = GRACE_S if state.status == ABSENT else PATIENCE_S
            if state.status == "DEPLOY_FAILED" or waited > limit:
                raise _not_started(name, state, waited)
            if state.status == "RUNNING":
                names = names - {name}
        if names:
            time.sleep(0.5)  # asking costs the controller some 50 ms


def _not_started(app: str, state: AppState, waited: float) -> C2BError:
    """Returns the exception of a replica's constructor if it is one of ours; otherwise Serve's message as a
    ServiceError."""
    cause = from_text(state.message)
    if cause is None:
        return ServiceError(f"app {app!r} is {state.status} after {waited:.0f} s: {state.message}", app=app)
    cause.app = cause.app or app
    return cause
