"""The search of latent directions: its stage, strips of images along a direction, and what changes on them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.latent.verdicts import FOUND, UNDETERMINED, EntangledAttribute, decide, ties_with
from c2b_ray.config.latent import BASELINES, LatentConfig
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.stage import Rows, Runner, StageConfig, each_alone
from c2b_ray.models import catalog
from c2b_ray.roles import Captioner, Description, Floats, Pixels
from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.stats.latent import Evidence, Target, alignment, measured_target, spanned, weigh_direction
from c2b_ray.stats.paired import mcnemar_p_values
from c2b_ray.steps.classify import check_revision
from c2b_ray.steps.draw import ImageCounter, png
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.latent import SEARCHES, DirectionRow, JudgedDirection, SearchFields, StripRow

_LEVEL = 0.05
_WORDS = 2


class PicturedStrip(Protocol):
    label: str
    centre: NDArray[np.float64]
    scale: float

    def sample(self, count: int, seed: int) -> Floats: ...

    def probabilities(self, latents: NDArray[Any]) -> NDArray[np.float64]: ...

    def pixels(self, latents: NDArray[Any]) -> list[Pixels]: ...


@dataclass(frozen=True)
class StripEnds:
    """How strips are drawn and named. `captioner`: None where there is none."""

    config: LatentConfig
    captioner: Captioner | None


def strip(
    space: PicturedStrip, normal: NDArray[np.float64], direction_id: str, ends: StripEnds
) -> tuple[list[StripRow], str | None]:
    """Returns rows of `tables.latent.STRIPS`, and the direction's name; None without a captioner or a word that
    differs."""
    config = ends.config
    name = None
    if ends.captioner is not None and config.strips.latents:
        low, high = (
            [reply.text for reply in ends.captioner.caption(space.pixels(part), [space.label] * len(part))]
            for part in _two_ends(space, normal, config)
        )
        name = name_of(low, high)
    if not config.strips.latents:
        return [], name
    positions = np.linspace(-config.strips.reach, config.strips.reach, config.strips.positions)
    # The same latents whatever the problem and the method: only the direction differs between strips.
    walk = walks(space, space.sample(config.strips.latents, seed_of("strips", config.seed)), normal, positions)
    flat = walk.reshape(-1, walk.shape[-1])
    answers, images = space.probabilities(flat), space.pixels(flat)
    rows: list[StripRow] = []
    for index, (probability, image) in enumerate(zip(answers.tolist(), images, strict=True)):
        latent, position = divmod(index, len(positions))
        rows.append(
            {
                "direction_id": direction_id,
                "latent": latent,
                "position": float(positions[position]),
                "probability": probability,
                "caption": None,
                "image": png(image, level=9),
            }
        )
    return rows, name


def walks(
    space: PicturedStrip, latents: Floats, normal: NDArray[np.float64], positions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns (latents, positions, d): each latent, moved along the unit normal to `positions` of the prior's standard
    deviations from its mean."""
    across = latents - ((latents - space.centre) @ normal)[:, None] * normal
    moved: NDArray[np.float64] = across[:, None, :] + space.scale * positions[:, None] * normal
    return moved


def _two_ends(space: PicturedStrip, normal: NDArray[np.float64], config: LatentConfig) -> list[NDArray[np.float64]]:
    latents = space.sample(config.strips.named_by, seed_of("names", config.seed))
    pixels_of_ends = walks(space, latents, normal, np.array([-config.strips.reach, config.strips.reach]))
    return [pixels_of_ends[:, 0], pixels_of_ends[:, 1]]


def name_of(low: Sequence[str | None], high: Sequence[str | None]) -> str | None:
    """Returns the direction's name; None where there is none.

    `low` and `high`: captions of the two ends of the same latents, in the same order.
    """
    pairs = [(_words(a), _words(b)) for a, b in zip(low, high, strict=True) if a is not None and b is not None]
    words = sorted({word for pair in pairs for words in pair for word in words})
    only_low = np.array([sum(word in a and word not in b for a, b in pairs) for word in words])
    only_high = np.array([sum(word in b and word not in a for a, b in pairs) for word in words])
    if not words:
        return None
    telling = benjamini_hochberg(mcnemar_p_values(only_low, only_high)) <= _LEVEL
    sides = []
    for sign in (1, -1):
        excess = sign * (only_low - only_high)
        best = [i for i in np.argsort(-excess, kind="stable") if telling[i] and excess[i] > 0][:_WORDS]
        sides.append(", ".join(words[i] for i in best))
    return f"{sides[0] or '…'} → {sides[1] or '…'}" if any(sides) else None


def _words(caption: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d_]{2,}", caption.casefold()))


# Solves one problem of `c2b latent` by one method: directions are searched one after the other, each judged on
# held-out latents.


Vectors = NDArray[np.float64]
_RANDOM = 64
_CONSTANT = 1e-6
_NO_ROOM = "no direction is left: the target and the known attributes span the whole latent space"


class LatentSpace(Protocol):
    """A latent space as a classifier sees it; `models.latent_search.Space`."""

    label: str
    dimension: int
    images_used: int
    centre: Vectors
    scale: float

    def sample(self, count: int, seed: int) -> Floats: ...

    def probabilities(self, latents: NDArray[Any]) -> Vectors: ...

    def answers(self, latents: NDArray[Any]) -> Vectors: ...

    def pixels(self, latents: NDArray[Any]) -> list[Pixels]: ...


class Direction(Protocol):
    """The result of a search; `models.latent_search.Direction`."""

    @property
    def normal(self) -> Vectors: ...

    @property
    def offset(self) -> float: ...

    @property
    def picked(self) -> str: ...


@dataclass(frozen=True)
class SearchTask:
    """One problem in the form in which it is searched.

    `target`: the unit normal of its attribute, None where every image shows it; `angle`: its uncertainty in radians;
    `known`: name → normal; `bias`: the normal that results are judged by. `latents` and `labels`: held out, with the
    target's value in each image; None where the target is not known for single images. `scores`: of the same latents,
    the target by a curved fit to its labels. `attributes`: name → unit normal of all separated attributes; with
    `pseudo`, the one of them, neither target nor known, that moves the answers most is taken as the truth. `rest`: the
    known ones are all but target and truth.
    """

    problem: str
    generator: str
    classifier: str
    label: str
    target_name: str | None
    target: Vectors | None
    angle: float
    known: Mapping[str, Vectors]
    biased: str | None
    bias: Vectors | None
    references: int
    known_by: str
    latents: Floats | None = None
    labels: NDArray[np.bool_] | None = None
    scores: Vectors | None = None
    attributes: Mapping[str, Vectors] = field(default_factory=dict)
    pseudo: bool = False
    rest: bool = False

    @property
    def others(self) -> Vectors:
        """The target's normal, first, and those of known attributes; (K, d)."""
        rows = [vector for vector in (self.target, *self.known.values()) if vector is not None]
        return np.stack(rows) if rows else np.zeros((0, 0))


class SearchModels(Protocol):
    """A process's models, and the orders by their ids."""

    config: LatentConfig
    captioner: Captioner | None

    def order(self, search_id: str) -> SearchTask: ...

    def space(self, order: SearchTask) -> LatentSpace: ...

    def find(self, space: Any, method: str, order: SearchTask, kept: Vectors, seed: int) -> Direction: ...

    def total_variation(self, space: Any, latents: Floats, normal: Vectors) -> float: ...


@dataclass(frozen=True)
class Trial:
    """Held-out latents, P(label) in each, and what is known about the target in each."""

    latents: Floats
    answers: Vectors
    target: Target | None


def search_problems(batch: pa.Table, work: SearchModels) -> pa.Table:
    """Returns a row of `tables.latent.SEARCHES` per row (`search_id`, `problem`, `method`)."""
    rows = []
    for row in batch.to_pylist():
        began = time.monotonic()
        answer = _searched(row["search_id"], row["method"], work)
        rows.append({**row, **answer, "seconds": time.monotonic() - began, "error": None})
    return pa.Table.from_pylist(rows, SEARCHES)


def _searched(search_id: str, method: str, work: SearchModels) -> SearchFields:
    order = work.order(search_id)
    space, config = work.space(order), work.config
    before = space.images_used
    seed = seed_of("latent", config.seed, order.problem, method)
    trial = trial_of(order, space, config)
    reason = _unsearchable(trial, space.label, config)
    order = order if reason else with_pseudo_truth(order, space, work)
    free_dimensions = _room(order, space, method)
    if reason or not free_dimensions:
        nothing = _row(order, space, method)
        nothing["reason"], nothing["images_used"] = reason or _NO_ROOM, space.images_used - before
        return {"directions": [nothing], "strips": []}
    directions_so_far = np.zeros((0, space.dimension))
    rows: list[DirectionRow] = []
    strips: list[StripRow] = []
    for rank in range(min(config.directions, free_dimensions)):
        direction = work.find(space, method, order, directions_so_far, seed_of("direction", seed, rank))
        evidence = weighed(trial, direction.normal, config)
        sign = -1.0 if evidence.effect < 0 else 1.0
        normal = sign * direction.normal
        evidence = weighed(trial, normal, config)
        row: DirectionRow = {
            **_row(order, space, method),
            **_judged(order, normal, evidence, trial, directions_so_far, config),
        }
        row["rank"], row["offset"], row["picked"] = rank, sign * direction.offset, direction.picked or None
        held_out = space.sample(config.search.batch, seed_of("variation", config.seed))
        row["total_variation"] = work.total_variation(space, held_out, normal)
        row["direction_id"] = content_id("direction", search_id, rank)
        images, row["name"] = strip(space, normal, row["direction_id"], StripEnds(config, work.captioner))
        before, row["images_used"] = space.images_used, space.images_used - before
        rows, strips, directions_so_far = (
            [*rows, row],
            [*strips, *images],
            np.concatenate([directions_so_far, normal[None]]),
        )
        if row["verdict"] != FOUND:
            break
    return {"directions": rows, "strips": strips}


def trial_of(order: SearchTask, space: LatentSpace, config: LatentConfig) -> Trial:
    """Returns the latents that decide: labelled ones if there are any, else latents that no search has seen."""
    latents = order.latents
    if latents is None:
        latents = space.sample(config.evidence.latents, seed_of("evidence", config.seed, order.problem))
    answers = space.answers(latents)
    if order.target is None:
        return Trial(latents, answers[:, 0], None)
    measured_along = measured_target(order.labels, answers[:, 1:])
    return Trial(latents, answers[:, 0], Target(latents @ order.target, measured_along, order.angle, order.scores))


def weighed(trial: Trial, normal: Vectors, config: LatentConfig) -> Evidence:
    evidence = config.evidence
    return weigh_direction(trial.answers, trial.latents @ normal, trial.target, evidence.margin, evidence.level)


def with_pseudo_truth(order: SearchTask, space: LatentSpace, work: SearchModels) -> SearchTask:
    """Returns the order with the pseudo-ground truth, where that is used as the biased attribute: the attribute along
    whose normal the answers' total variation is largest (Li & Xu 2021, section 5.2)."""
    excluded = {order.target_name, *(() if order.rest else order.known)}
    candidates = {name: normal for name, normal in order.attributes.items() if name not in excluded}
    if not order.pseudo or not candidates:
        return order
    latents = space.sample(work.config.search.batch, seed_of("variation", work.config.seed))
    variations = {name: work.total_variation(space, latents, normal) for name, normal in candidates.items()}
    best = max(variations, key=lambda name: variations[name])
    remaining = {name: normal for name, normal in order.known.items() if name != best}
    return replace(order, biased=best, bias=candidates[best], known=remaining)


def _room(order: SearchTask, space: LatentSpace, method: str) -> int:
    """Returns how many mutually orthogonal directions are left besides the target's and the known ones, which may be
    linearly dependent. Baselines leave out only the target's."""
    if method in BASELINES:
        return max(0, space.dimension - (order.target is not None))
    return space.dimension - len(spanned(order.others))


def _unsearchable(trial: Trial, label: str, config: LatentConfig) -> str:
    """Returns why the answers carry no information, "" where they may: they are almost constant although the target
    varies."""
    low, high = np.quantile(trial.answers, [0.01, 0.99])
    if np.ptp(trial.answers) < _CONSTANT:
        return f"constant predictions: P({label}) is {trial.answers[0]:.3f} for all {len(trial.answers)} latents"
    if trial.target is not None and high - low < config.evidence.margin:
        return (
            f"all but constant predictions: P({label}) is {low:.3f} to {high:.3f} for 98 % of {len(trial.answers)} "
            f"latents, which differ in the target: less than the margin, {config.evidence.margin:g}"
        )
    return ""


def _judged(
    order: SearchTask,
    normal: Vectors,
    evidence: Evidence,
    trial: Trial,
    directions_so_far: Vectors,
    config: LatentConfig,
) -> JudgedDirection:
    ties = [] if evidence.passes(config.evidence.level) else _ties(order, trial, directions_so_far, config)
    verdict, reason = decide(evidence, ties, config.evidence)
    to_bias: float | None = None
    to_target: float | None = None
    delta: float | None = None
    if order.target is not None:
        to_target = min(abs(float(normal @ order.target)) / float(np.linalg.norm(order.target)), 1.0)
        if order.bias is not None:
            to_bias, to_target, delta = alignment(normal, order.bias, order.target)
    elif order.bias is not None:
        to_bias = alignment(normal, order.bias, order.bias)[0]
    return {
        "direction": normal.tolist(),
        "cos_bias": to_bias,
        "cos_target": to_target,
        "delta_cos": delta,
        "verdict": verdict,
        "effect": evidence.effect,
        "effect_low": evidence.low,
        "effect_high": evidence.high,
        "margin": evidence.margin,
        "p_value": evidence.p_value,
        "random_effect": random_effect(order, trial, config),
        "reason": reason,
    }


def random_effect(order: SearchTask, trial: Trial, config: LatentConfig) -> float:
    """Returns the 95th percentile of the effects of random directions, orthogonal to the target and to known
    attributes, for comparison; no verdict rests on it (`stats.latent`)."""
    dimension = trial.latents.shape[1]
    generator = np.random.default_rng(seed_of("random", config.seed, dimension))
    draws = generator.standard_normal((_RANDOM, dimension))
    if len(basis := spanned(order.others)):
        draws = draws - draws @ basis.T @ basis
    lengths = np.linalg.norm(draws, axis=1, keepdims=True)
    effects = [weighed(trial, draw, config).effect for draw in draws / np.maximum(lengths, 1e-12)]
    return float(np.quantile(np.abs(effects), 0.95))


def _ties(
    order: SearchTask, trial: Trial, directions_so_far: Vectors, config: LatentConfig
) -> list[EntangledAttribute]:
    """Returns labelled attributes that can hardly be distinguished from the target; known ones are left out."""
    if order.target is None:
        return []
    other_attributes = {n: v for n, v in order.attributes.items() if n != order.target_name and n not in order.known}
    return ties_with(
        order.target,
        other_attributes,
        lambda normal: weighed(trial, normal, config),
        config.evidence.margin,
        directions_so_far,
    )


def _row(order: SearchTask, space: LatentSpace, method: str) -> DirectionRow:
    """Returns a row without a direction."""
    return {
        "direction": None, "cos_bias": None, "cos_target": None, "delta_cos": None, "offset": None, "effect": None,
        "effect_low": None, "effect_high": None, "margin": None, "p_value": None, "total_variation": None,
        "random_effect": None, "picked": None, "name": None,
        "target": order.target_name or space.label,
        "generator": order.generator,
        "method": method,
        "verdict": UNDETERMINED,
        "problem": order.problem,
        "classifier": order.classifier,
        "label": space.label,
        "biased": order.biased,
        "known": [] if method in BASELINES else sorted(order.known),
        "rank": 0,
        "target_known_by": order.known_by,
        "images_used": 0,
        "reason": None,
        "direction_id": content_id("direction", order.problem, method, 0),
    }  # fmt: skip


# The stage of `c2b latent`: one search per row, each in a process that holds its generator and its classifier.


IMAGES = ImageCounter()

SEARCH = StageConfig(SEARCHES, stage="generate", rows_per_file=1, weigh=each_alone, most_weight=1)


@dataclass(frozen=True)
class Specs:
    """The models of one problem, and by spec the revisions that they had when the run began."""

    generator: str
    classifier: str
    label: str | None
    references: tuple[str, ...]
    revisions: Mapping[str, str]


@dataclass
class LatentWork:
    """The models that a process holds; implements `audits.latent.search.SearchModels`. Each model is loaded once."""

    config: LatentConfig
    orders: Mapping[str, SearchTask]
    specs: Mapping[str, Specs]
    captioner: Captioner | None = None
    _loaded: dict[tuple[str, str], Any] = field(default_factory=dict)
    _spaces: dict[Any, Any] = field(default_factory=dict)

    def order(self, search_id: str) -> SearchTask:
        return self.orders[search_id]

    def space(self, order: SearchTask) -> Any:
        return self.space_of(self.specs[order.problem])

    def space_of(self, specs: Specs) -> Any:
        key = (specs.generator, specs.classifier, specs.label, specs.references)
        if key not in self._spaces:
            from c2b_ray.models.latent_search import Space

            references = [self._model("classifier", spec, specs) for spec in specs.references]
            generator = self._model("latent_generator", specs.generator, specs)
            classifier = self._model("classifier", specs.classifier, specs)
            self._spaces[key] = Space(generator, classifier, specs.label, references)
            self._spaces[key].on_images = IMAGES.add
        return self._spaces[key]

    def find(self, space: Any, method: str, order: SearchTask, kept: Vectors, seed: int) -> Direction:
        from c2b_ray.models.latent_search import Constraints, find_direction

        rows = order.others.reshape(-1, space.dimension)
        return find_direction(space, method, self.config.search, Constraints(rows, kept, order.target), seed)

    def total_variation(self, space: Any, latents: Floats, normal: Vectors) -> float:
        from c2b_ray.models.latent_search import total_variation

        return total_variation(space, latents, normal, self.config.search)

    def _model(self, role: str, spec: str, specs: Specs) -> Any:
        if (role, spec) not in self._loaded:
            from c2b_ray.models.gradients import gradient_classifier

            model: Any = catalog.load(role, spec) if role != "classifier" else gradient_classifier(spec)
            check_revision(spec, model.revision, specs.revisions.get(spec, model.revision))
            self._loaded[role, spec] = model
        return self._loaded[role, spec]


def search_all(
    runner: Runner,
    rows: Sequence[Mapping[str, str]],
    work: tuple[LatentConfig, Mapping[str, SearchTask], Mapping[str, Specs]],
    out: str,
    on_progress: OnProgress,
) -> None:
    """Writes a row of `tables.latent.SEARCHES` per row (`search_id`, `problem`, `method`) into parts under `out`."""
    schema = pa.schema([SEARCHES.field(name) for name in ("search_id", "problem", "method")])
    blocks = [pa.Table.from_pylist([dict(row)], schema) for row in rows]
    runner.run(
        Rows(blocks, total=len(blocks)),
        search_problems,
        partial(_load, *work),
        out,
        id_column="search_id",
        config=SEARCH,
        on_progress=on_progress,
    )


def labelled_by_references(config: LatentConfig, specs: Specs, count: int, seed: int) -> tuple[Floats, Any]:
    """Returns `count` latents of the prior, and for each whether the references' mean P(label) of its image is above
    one half (bool)."""
    space = LatentWork(config, {}, {"": specs}).space_of(specs)
    latents = space.sample(count, seed)
    return latents, space.answers(latents)[:, 1:].mean(axis=1) > 0.5


def described(spec: str) -> Description:
    """Returns a latent generator's description. The generator is loaded only if no other source describes it."""
    return catalog.described("latent_generator", spec)


def _load(config: LatentConfig, orders: Mapping[str, SearchTask], specs: Mapping[str, Specs]) -> LatentWork:
    captioner = catalog.captioner(config.captioner) if config.captioner is not None else None
    return LatentWork(config, orders, specs, captioner)
