"""Scenes as tables: labelled images for an audit or an index, and the data of a CLIP-bias audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.errors import ConfigError
from c2b_ray.steps.draw import png
from c2b_ray.storage import files
from c2b_ray.world.captions import caption
from c2b_ray.world.clip_zoo_members import check_factor, neutral_texts
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

ROWS_PER_GROUP = 1024


def labelled_table(scenes: list[Scene], prefix: str = "scene") -> pa.Table:
    """Returns a row per scene: `key`, `image` (PNG bytes), `target_class` and a column per attribute."""
    columns: dict[str, pa.Array] = {
        "key": pa.array([f"{prefix}-{i:06d}" for i in range(len(scenes))]),
        "image": pa.array([picture(scene) for scene in scenes], pa.binary()),
        "target_class": pa.array([scene.target_class for scene in scenes]),
    }
    for name in ATTRIBUTES:
        columns[name] = pa.array([scene.attribute(name) for scene in scenes])
    return pa.table(columns)


def picture(scene: Scene) -> bytes:
    return png(render(scene), level=1)


def write_sample(path: str | Path, n: int, seed: int) -> None:
    """Writes `n` uniformly sampled scenes as one Parquet file, whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(labelled_table(sample(n, seed), f"scene-{seed}"), sink, row_group_size=ROWS_PER_GROUP)
    files.write_under(path, sink.getvalue().to_pybytes())


# The data of a CLIP-bias audit: rendered scenes with captions, attributes and localities, and the neutral texts.


_SETTINGS = ATTRIBUTES["setting"]
MOST_LOCALITIES = len(CLASSES)


@dataclass(frozen=True)
class TableOptions:
    """`n` scenes in groups of equal size, the values of `attribute`.

    captions: the number of captions of each picture. localities: 0 for scenes with attributes of every value, else the
    number of kinds of scene, each of one class in one setting, of equal size. planted: the share of the last group's
    captions that are mistaken in the first locality. balanced: see the module's docstring.
    """

    n: int = 5000
    seed: int = 1000
    attribute: str = "companion"
    values: tuple[str, ...] = ("dog", "person")
    captions: int = 1
    localities: int = 0
    planted: float = 0.0
    balanced: bool = True

    def __post_init__(self) -> None:
        check_factor("attribute", self.attribute, self.values)
        if not 0 <= self.localities <= MOST_LOCALITIES:
            raise ConfigError("localities", f"{self.localities} is not from 0 to {MOST_LOCALITIES}")
        if not 0 <= self.planted <= 1:
            raise ConfigError("planted", f"{self.planted} is not a number from 0 to 1")
        if self.planted and self.localities < 2:
            raise ConfigError("planted", "a bias in one locality needs two localities or more")
        if self.localities and self.attribute in ("target_class", "setting"):
            raise ConfigError("attribute", f"localities differ in {self.attribute}; groups need another attribute")


def locality(k: int) -> tuple[str, str]:
    """Returns class and setting of the k-th locality; no two localities share a class."""
    return CLASSES[k], _SETTINGS[k % len(_SETTINGS)]


def write(directory: Path, options: TableOptions) -> None:
    """Writes `directory`/table.parquet, and `directory`/texts.txt with one neutral text a line."""
    directory.mkdir(parents=True, exist_ok=True)
    sink = pa.BufferOutputStream()
    pq.write_table(audit_table(options), sink, row_group_size=ROWS_PER_GROUP)
    files.write_under(directory / "table.parquet", sink.getvalue().to_pybytes())
    files.write_under(directory / "texts.txt", "".join(f"{text}\n" for text in neutral_texts()).encode())


def audit_table(options: TableOptions) -> pa.Table:
    """Returns `key, image` (PNG bytes), `caption` (list of texts), `target_class`, every attribute, `locality`,
    `mistaken`.

    locality: null without localities. mistaken: whether the captions describe another scene: the planted truth, to
    judge an audit by; the audit must not read it.
    """
    scenes = scenes_of(options)
    mistaken = mistaken_rows(scenes, options)
    described = [_another(k, scenes, options) if k in mistaken else scene for k, scene in enumerate(scenes)]
    texts = [
        [caption(scene, options.seed + 7919 * k + j) for j in range(options.captions)]
        for k, scene in enumerate(described)
    ]
    names = [f"{scene.target_class}, {scene.setting}" if options.localities else None for scene in scenes]
    table = labelled_table(scenes, f"scene-{options.seed}")
    return (
        table.add_column(2, "caption", pa.array(texts, pa.list_(pa.string())))
        .append_column("locality", pa.array(names, pa.string()))
        .append_column("mistaken", pa.array([k in mistaken for k in range(len(scenes))]))
    )


def scenes_of(options: TableOptions) -> list[Scene]:
    """Samples the scenes. Scene k has group k mod groups and, with localities, locality (k div groups) mod
    localities."""
    result = []
    for k, scene in enumerate(sample(options.n, options.seed)):
        group = options.values[k % len(options.values)]
        changes = {options.attribute: group}
        if options.localities:
            target, setting = locality(k // len(options.values) % options.localities)
            changes |= {"target_class": target, "setting": setting}
        result.append(_changed(scene, changes))
    return result


def mistaken_rows(scenes: Sequence[Scene], options: TableOptions) -> set[int]:
    """Returns the rows whose captions describe another scene."""
    if not options.planted:
        return set()
    random = Random(f"mistaken {options.seed}")  # noqa: S311 (no secret)
    target, setting = locality(0)
    in_target = [scene.target_class == target and scene.setting == setting for scene in scenes]
    favoured = [getattr(scene, options.attribute) != options.values[-1] for scene in scenes]
    hit = [k for k in range(len(scenes)) if in_target[k] and not favoured[k]]
    rows = random.sample(hit, round(options.planted * len(hit)))
    if options.balanced:
        candidates = [k for k in range(len(scenes)) if not in_target[k] and favoured[k]]
        count = len(rows) * (len(options.values) - 1)
        rows += random.sample(candidates, min(count, len(candidates)))
    return set(rows)


def _another(row: int, scenes: Sequence[Scene], options: TableOptions) -> Scene:
    """Returns another scene of the row's group and locality, which a mistaken caption describes."""
    scene = scenes[row]
    other_scene = sample(1, options.seed + 104_729 * (row + 1))[0]
    changes = {options.attribute: getattr(scene, options.attribute)}
    if options.localities:
        changes |= {"target_class": scene.target_class, "setting": scene.setting}
    return _changed(other_scene, changes)


def _changed(scene: Scene, changes: dict[str, str]) -> Scene:
    replaced: Scene = replace(scene, **changes)  # type: ignore[arg-type]
    return replaced
