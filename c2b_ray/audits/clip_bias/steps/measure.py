"""Embeddings of images and texts, and what they show: rows of bias of one attribute in one view, all models at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.names import folded
from c2b_ray.roles import TextImageEncoder
from c2b_ray.stats import Floats, Ints, benjamini_hochberg
from c2b_ray.stats.disparity import Chance, Scores, disparity
from c2b_ray.stats.skew import FEW, MeanSkew, SkewRule, mean_max_skew, scored_max_skew
from c2b_ray.steps import encoded
from c2b_ray.tables import seed_of
from c2b_ray.tables.clip_bias import CLIP_BIAS, CLIP_EMBEDDINGS, RATES, REPLICATES

# Computes from embeddings which captions each image retrieves, and how images rank for a description.


Vectors = NDArray[np.float32]
IMAGES_AT_ONCE = 1024


@dataclass(frozen=True)
class Gallery:
    """The texts that captions are retrieved from, each once. `of_image`: the numbers of each image's captions.

    Images that share a caption share its text: retrieving it is right for all of them, whereas a gallery with repeats
    would count all but one of them as wrong.
    """

    texts: tuple[str, ...]
    of_image: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(captions: Sequence[Sequence[str]]) -> Gallery:
        numbers = {
            text: number
            for number, text in enumerate(
                dict.fromkeys(caption for image_captions in captions for caption in image_captions)
            )
        }
        return Gallery(
            tuple(numbers),
            tuple(tuple(sorted({numbers[caption] for caption in image_captions})) for image_captions in captions),
        )


def recalled(images: Vectors, texts: Vectors, gallery: Gallery, k: int, hit: str) -> tuple[Floats, Floats]:
    """Returns for each image the share of its captions among the k nearest texts (`share`), or whether any is (`any`),
    and a count of 1; 0 and 0 for an image without a caption.

    Among equally near texts, earlier ones in the gallery rank first. Shapes (images,) each.
    """
    totals, counts = np.zeros(len(images)), np.zeros(len(images))
    for start in range(0, len(images), IMAGES_AT_ONCE):
        cosines = images[start : start + IMAGES_AT_ONCE].astype(np.float64) @ texts.T.astype(np.float64)
        retrieved = _nearest(cosines, k)
        for row in range(len(cosines)):
            captions_of_image = gallery.of_image[start + row]
            if not captions_of_image:
                continue
            hits = int(retrieved[row, list(captions_of_image)].sum())
            totals[start + row] = hits / len(captions_of_image) if hit == "share" else float(hits > 0)
            counts[start + row] = 1.0
    return totals, counts


def _nearest(cosines: Floats, k: int) -> NDArray[np.bool_]:
    """Returns which texts are the k nearest of each row, ties in their order."""
    if k >= cosines.shape[1]:
        return np.ones(cosines.shape, bool)
    limit = -np.partition(-cosines, k - 1, axis=1)[:, k - 1 : k]
    above, level = cosines > limit, cosines == limit
    places_left = k - above.sum(axis=1, keepdims=True)
    result: NDArray[np.bool_] = above | (level & (np.cumsum(level, axis=1) <= places_left))
    return result


def alike_of(images: Vectors) -> Ints:
    """Returns for each image the number of the first one with the same embedding to five decimals: the position in a
    batch may change the last digits."""
    first: dict[bytes, int] = {}
    rounded = np.round(images, 5) + 0.0  # so that -0 is 0
    return np.array([first.setdefault(row.tobytes(), number) for number, row in enumerate(rounded)], np.int64)


def copies_of(copies_by_model: Ints) -> Ints:
    """Returns for each image the number of the first one that is the same picture to every model. `copies_by_model`:
    (models, images).

    Where fewer than half of the images differ, the models cannot distinguish them, and nothing counts as a copy.
    """
    _, first, picture = np.unique(copies_by_model, axis=1, return_index=True, return_inverse=True)
    if 2 * len(first) < copies_by_model.shape[1]:
        return np.arange(copies_by_model.shape[1])
    of_image: Ints = first[picture.ravel()]
    return of_image


def similarities(images: Vectors, texts: Vectors) -> Vectors:
    """Returns cosines, float32 (texts, images)."""
    result: Vectors = texts @ images.T
    return result


# Computes embeddings of images and texts, with permanent ids. It knows neither where the encoder runs nor what is
# embedded.


def embed_images(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `CLIP_EMBEDDINGS` from `embedding_id`, `bytes` and `error`; images that cannot be decoded get
    an error."""
    return _table(rows, *encoded.embedded(rows, encoder))


def embed_texts(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table like that of `embed_images`, from `embedding_id` and `text`."""
    vectors = encoder.encode_texts(rows["text"].to_pylist())
    return _table(rows, [vector.tolist() for vector in vectors], [None] * rows.num_rows)


def _table(rows: pa.Table, vectors: list[list[float] | None], errors: list[str | None]) -> pa.Table:
    columns = {
        "embedding_id": rows["embedding_id"],
        "embedding": pa.array(vectors, CLIP_EMBEDDINGS.field("embedding").type),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(CLIP_EMBEDDINGS)


# Measured biases as rows, and the tables of a run that they make.


NAN = float("nan")
PRETRAINING, DOWNSTREAM = "pretraining", "downstream"


@dataclass(frozen=True)
class Key:
    """Identifies a bias, apart from the model."""

    dataset: str
    metric: str
    attribute: str
    view: str
    group: str
    stage: str


@dataclass(frozen=True)
class BiasRow:
    """A row of `CLIP_BIAS`. `replicates`: the value in bootstrap samples that all models of the key share; None where
    the metric has none."""

    model: str
    key: Key
    value: float
    value_low: float
    value_high: float
    n: int
    expected: float
    p_value: float
    q_value: float = NAN
    k: int | None = None
    rule: str | None = None
    favoured: str | None = None
    favoured_texts: int | None = None
    texts: int | None = None
    note: str | None = None
    replicates: Floats | None = None


@dataclass(frozen=True)
class RateRow:
    """A row of `RATES`. `reach`: the half-width of an interval of a contrast, in standard errors."""

    model: str
    key: Key
    rate_metric: str
    attribute_value: str
    rate: float
    standard_error: float
    reach: float
    n: int


@dataclass
class MeasuredModels:
    """The results of all models so far."""

    biases: list[BiasRow] = field(default_factory=list)
    rates: list[RateRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def unknown(self, models: Iterable[str], key: Key, n: int, note: str) -> None:
        """Adds rows without a value, with a note that says why."""
        self.biases += [BiasRow(model, key, NAN, NAN, NAN, n, NAN, NAN, note=note) for model in models]


def with_q_values(rows: Sequence[BiasRow]) -> list[BiasRow]:
    """Returns the rows with q-values (false discovery rate) over all rows that have a p-value."""
    q_values = benjamini_hochberg([row.p_value for row in rows])
    return [replace(row, q_value=float(q)) for row, q in zip(rows, q_values, strict=True)]


def bias_table(rows: Sequence[BiasRow]) -> pa.Table:
    names = [name for name in BiasRow.__dataclass_fields__ if name not in ("key", "replicates")]
    return pa.Table.from_pylist(
        [{**asdict(row.key), **{name: getattr(row, name) for name in names}} for row in rows], CLIP_BIAS
    )


def replicate_table(rows: Sequence[BiasRow]) -> pa.Table:
    """Returns the replicates of the rows that have any, as `REPLICATES`."""
    return pa.Table.from_pylist(
        [
            {"model": row.model, **asdict(row.key), "values": row.replicates}
            for row in rows
            if row.replicates is not None and np.isfinite(row.value)
        ],
        REPLICATES,
    )


def rate_table(rows: Sequence[RateRow]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                **{name: getattr(row.key, name) for name in ("dataset", "attribute", "view", "group")},
                "model": row.model,
                "metric": row.rate_metric,
                "attribute_value": row.attribute_value,
                "rate": row.rate,
                "standard_error": row.standard_error,
                "n": row.n,
            }
            for row in rows
        ],
        RATES,
    )


# Attributes of images as numbers, and the views of a dataset in which bias is measured.


GLOBAL, ALL = "global", "all"


@dataclass(frozen=True)
class Attribute:
    """`codes` (images,): the number of each image's value in `values`, or -1 where it has none."""

    name: str
    values: tuple[str, ...]
    codes: Ints

    @staticmethod
    def of(name: str, column: Sequence[str | None]) -> Attribute:
        """Spellings that differ in case alone are one value, called by the most frequent of them."""
        counts = Counter(value for value in column if value is not None)
        spelling: dict[str, str] = {}
        for value, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            spelling.setdefault(folded(value), value)
        values = tuple(sorted(spelling.values()))
        numbers = {folded(value): number for number, value in enumerate(values)}
        codes = [-1 if value is None else numbers[folded(value)] for value in column]
        return Attribute(name, values, np.array(codes, np.int64))

    def within(self, members: Ints) -> Ints:
        """Returns the codes of these images."""
        return self.codes[members]

    def problem(self, members: Ints) -> str | None:
        """Returns why no bias can be measured among these images; None where it can."""
        counts = np.bincount(self.codes[members][self.codes[members] >= 0], minlength=len(self.values))
        if len(self.values) < 2:
            values_text = f"only {self.values[0]!r}" if self.values else "none"
            return f"{self.name} has {values_text} as a value: a bias needs two"
        absent = [value for value, count in zip(self.values, counts, strict=True) if count == 0]
        if absent:
            return f"no image here has the {self.name} {absent[0]!r}: its rate is unknown, and so is the bias"
        return None


@dataclass(frozen=True)
class ImageSubset:
    """Some images of a dataset: all, or those of a group that models' clusters share. `members`: ascending."""

    view: str
    group: str
    members: Ints

    @staticmethod
    def everything(images: int) -> ImageSubset:
        return ImageSubset(GLOBAL, ALL, np.arange(images))

    @property
    def label(self) -> str:
        return GLOBAL if self.view == GLOBAL else f"group {self.group}"


@dataclass(frozen=True)
class Skew:
    """How MaxSkew is computed: over at most `most` images, and at most `share` of the ranked ones, by `rule`."""

    most: int
    share: float
    rule: SkewRule

    def k(self, images: int) -> int:
        return max(1, min(self.most, int(images * self.share)))


def seeded(chance: Chance, *subject: object) -> Chance:
    """Returns the settings with a seed that follows from what is tested, so that the order of work changes no
    result."""
    return replace(chance, seed=seed_of("clip-bias", chance.seed, *subject))


def measure_disparity(
    measurements: MeasuredModels,
    key: Key,
    scores: Mapping[str, tuple[Floats, Floats]],
    subset: tuple[Attribute, ImageSubset],
    chance: Chance,
    copies: Ints | None = None,
) -> None:
    """Adds rows of the KL of a score's group means, and of these means. `scores`: model → totals and counts
    (images,). `copies`: for each image, the number of the first that is the same picture; these count as one."""
    attribute, view = subset
    members = view.members[attribute.within(view.members) >= 0]
    models = list(scores)
    totals, counts = (np.stack([scores[model][part][members] for model in models]) for part in (0, 1))
    answered = members[(counts > 0).all(axis=0)]
    if (problem := attribute.problem(answered)) is not None:
        measurements.unknown(models, key, len(answered), problem)
        return
    codes = attribute.within(members)
    if copies is not None:
        totals, counts, codes = _by_picture(totals, counts, codes, copies[members])
    chance = seeded(chance, key.dataset, key.attribute, key.view, key.group)
    result = disparity(Scores(totals, counts), codes, len(attribute.values), chance)
    group_sizes = np.bincount(attribute.within(answered), minlength=len(attribute.values))
    rarest = _few(attribute.within(answered), None if copies is None else copies[answered], attribute) or None
    for number, model in enumerate(models):
        note = rarest if np.isfinite(result.value[number]) else "no group has a score above 0"
        value, low, high = result.value[number], result.low[number], result.high[number]
        row = BiasRow(
            model, key, float(value), float(low), float(high), len(answered), float(result.expected[number]),
            float(result.p_value[number]), note=note, replicates=result.replicates[:, number],
        )  # fmt: skip
        measurements.biases.append(row)
        for group, name in enumerate(attribute.values):
            rate, error = float(result.rates[number, group]), float(result.errors[number, group])
            score = key.metric.removeprefix("kl_")
            measurements.rates.append(
                RateRow(model, key, score, name, rate, error, float(result.reach[number]), int(group_sizes[group]))
            )


def _by_picture(totals: Floats, counts: Floats, codes: Ints, copies: Ints) -> tuple[Floats, Floats, Ints]:
    """Adds up the scores of copies with one value: means stay as they are, and copies are one picture's evidence."""
    pictures, picture = np.unique(np.stack([copies, codes]), axis=1, return_inverse=True)
    picture_numbers, number = picture.ravel(), pictures.shape[1]
    sums = np.stack(
        [[np.bincount(picture_numbers, of_model, number) for of_model in numbers] for numbers in (totals, counts)]
    )
    return sums[0].astype(np.float64), sums[1].astype(np.float64), pictures[1]


def measure_skew(
    measurements: MeasuredModels,
    key: Key,
    scores: Mapping[str, Vectors],
    subset: tuple[Attribute, ImageSubset],
    skew_settings: tuple[Skew, Chance],
    copies: Ints | None = None,
) -> None:
    """Adds rows of the mean MaxSkew@k over texts. `scores`: model → similarities (texts, images). `copies`: as for
    `measure_disparity`; they count in the shares, and are one picture's evidence."""
    (attribute, view), (skew, chance) = subset, skew_settings
    members = view.members[attribute.within(view.members) >= 0]
    if (problem := attribute.problem(members)) is not None:
        measurements.unknown(list(scores), key, len(members), problem)
        return
    codes, k = attribute.within(members), skew.k(len(members))
    copies_of_members = None if copies is None else copies[members]
    chance = seeded(chance, key.dataset, key.attribute, key.view, key.group)
    for model, similar in scores.items():
        ranked = similar[:, members]
        order = np.argsort(-ranked, axis=1, kind="stable")
        result = mean_max_skew(order, codes, len(attribute.values), k, chance, copies_of_members)
        value, low, high = result.value, result.low, result.high
        note = _by_chance(result, attribute.values)
        if rarest := _few(codes, copies_of_members, attribute):
            note += f"; {rarest}, so the interval is wide"
        if skew.rule != "formula":
            value = _by_rule(ranked, codes, k, skew.rule)
            note = (
                f"the value is by the rule; expected value, p and interval, widened to it, are of the formula; {note}"
            )
            low, high = min(low, value), max(high, value)
        row = BiasRow(
            model, key, value, low, high, len(members), result.expected, result.p_value, k=k,
            rule=skew.rule, note=note, replicates=result.replicates, **_favoured(result, attribute.values),
        )  # fmt: skip
        measurements.biases.append(row)


class _Favoured(TypedDict, total=False):
    favoured: str
    favoured_texts: int
    texts: int


def _favoured(skew: MeanSkew, values: Sequence[str]) -> _Favoured:
    """Returns the value that is the most over-represented one for the most texts; none where two are for as many."""
    texts = int(skew.leads.sum())
    first, *others = np.sort(skew.leads)[::-1].tolist()
    if not first or first in others:
        return {"texts": texts}
    return {"favoured": values[int(skew.leads.argmax())], "favoured_texts": first, "texts": texts}


def _by_chance(skew: MeanSkew, values: Sequence[str]) -> str:
    """Returns a note: the value under shuffles, and the direction in which texts lean, because a mean of maxima is
    above 0 also where texts lean in opposite directions."""
    if np.isnan(skew.value):
        return "there is no neutral text"
    texts = int(skew.leads.sum())
    leading = [f"{value} in {count}" for value, count in zip(values, skew.leads.tolist(), strict=True)]
    return (
        f"by chance {skew.expected:.3g}, in 95 % of shuffles below {skew.expected_high:.3g}; of {texts} texts the most "
        f"over-represented is {', '.join(leading)}"
    )


def _few(codes: Ints, copies: Ints | None, attribute: Attribute) -> str:
    """Returns a remark where the rarest value has few images, else ""."""
    pictures = np.arange(len(codes)) if copies is None else copies
    counts = np.array([len(np.unique(pictures[codes == number])) for number in range(len(attribute.values))])
    rarest = int(counts.argmin())
    if counts[rarest] >= FEW:
        return ""
    noun = "image has" if counts[rarest] == 1 else "different images have"
    return f"only {counts[rarest]} {noun} the {attribute.name} {attribute.values[rarest]!r}"


def _by_rule(ranked: Vectors, codes: Ints, k: int, rule: SkewRule) -> float:
    return float(np.mean([scored_max_skew(scores, codes, k, rule) for scores in ranked]))


def views_of(images: int, groups: Sequence[Ints]) -> list[ImageSubset]:
    """Returns views of all images, and of each group, numbered from 1."""
    return named_views(images, {str(number): members for number, members in enumerate(groups, start=1)})


def named_views(images: int, groups: Mapping[str, Ints]) -> list[ImageSubset]:
    """Returns views of all images, and of each group by its name."""
    return [
        ImageSubset.everything(images),
        *(ImageSubset("local", name, np.sort(members)) for name, members in groups.items()),
    ]
