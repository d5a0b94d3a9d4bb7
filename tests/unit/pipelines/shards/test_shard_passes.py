"""Whole builds with models that are told apart at a glance: rows against a plain loop, whatever the shards."""

from collections import defaultdict
from functools import partial

import numpy as np
import pytest

from c2b_ray.pipelines.shards.here import CrewsHere
from c2b_ray.pipelines.shards.passes import Passes
from c2b_ray.pipelines.shards.planned import PlannedCaptions, write_captions
from c2b_ray.pipelines.shards.workshop import Recipe
from c2b_ray.roles import Answer, GeneratedImage
from c2b_ray.steps.dataset.captions import Numbered
from c2b_ray.steps.dataset.fingerprint import differing_bits, fingerprint
from c2b_ray.steps.dataset.plan import Plan, seed_of_draw
from c2b_ray.steps.dataset.shard import Crew, Judge, LabelCheck
from c2b_ray.steps.dataset.sources import Generated
from c2b_ray.steps.discovery.rules import Truth
from c2b_ray.store.dataset_build import building

LABELS = ("boat", "mug")
CAPTIONS = [("boat", "a boat"), ("mug", "a mug"), ("boat", "a boat at night"), ("boat", "a red boat"), ("mug", "mugs")]
DRAWS, CAP = 23, 5
BLACK, NAN, UNVERIFIED = 3, 4, 5


def kind(seed):
    """What becomes of the draw with this seed, of 16 kinds."""
    return seed % 16


def picture(seed):
    """One of a few pictures for each of eight seeds: many draws are near-duplicates."""
    cells = np.random.default_rng(seed // 16 % 60).integers(0, 256, (8, 8, 3), np.uint8)
    cells[0, 0] = kind(seed) * 16
    return cells.repeat(8, axis=0).repeat(8, axis=1)


class Generator:
    revision = "1"

    def generate(self, requests):
        made = [picture(request.seed) * (kind(request.seed) != BLACK) for request in requests]
        return [GeneratedImage(pixels.astype(np.uint8)) for pixels in made]


class Classifier:
    """Says mug to every picture whose first cell is of an even kind, else boat; nothing to `NAN`."""

    labels, revision = LABELS, "1"

    def logits(self, images, keys):
        kinds = np.array([image[0, 0, 0] // 16 for image in images])
        logits = np.stack([kinds % 2, 1 - kinds % 2], axis=1).astype(np.float32)
        logits[kinds == NAN] = np.nan
        return logits


class Captioner:
    revision = "1"

    def answer(self, images, questions):
        kinds = [int(image[0, 0, 0]) // 16 for image in images]
        return [Answer("something else") if kind == UNVERIFIED else Answer(None, error="dim") for kind in kinds]


def crew(verified=False):
    truths = {label: Truth(np.array([label == name for name in LABELS])) for label in LABELS}
    check = LabelCheck(Captioner(), LABELS) if verified else None
    return Crew(
        (Generated("toy", Generator()),), (Judge("toy", "1", LABELS, truths, Classifier()),), check, "top1", 0.0
    )


def build(out, shard_draws=9, threads=2, distance=4, make=crew):
    with building(str(out)) as directory:
        if not directory.files.exists("captions.parquet"):
            texts = ((label, text, None) for label, text in CAPTIONS)
            write_captions(directory.files, Numbered(DRAWS).tables(texts))
        plan = Plan("toy", DRAWS * len(CAPTIONS), shard_draws, 4)
        recipe = Recipe(directory.files, plan, make, 1, 0, distance, CAP)
        passes = Passes(recipe, CrewsHere(recipe, threads), PlannedCaptions(directory.files))
        passes.run_first(lambda done, total, sums: None)
        passes.run_second(lambda done, total, sums: None)
        names = [f"{plan.name(number)}.parquet" for number in range(plan.shards)]
        rows = [row for name in names for row in directory.files.read(f"shards/{name}").to_pylist()]
        drops = [row for name in names for row in directory.files.read(f"drops/{name}").to_pylist()]
    return rows, drops


def by_a_plain_loop(distance):
    """(caption, draw) → None for a row, else the reason of its drop."""
    result, seen, kept = {}, defaultdict(list), defaultdict(int)
    for number, (label, text) in enumerate(CAPTIONS):
        for draw in range(DRAWS):
            seed = seed_of_draw(0, text, draw)
            said = "mug" if kind(seed) % 2 == 0 else "boat"
            reason = "no_image" if kind(seed) == BLACK else "no_answer" if kind(seed) == NAN else None
            reason = reason or ("not_failed" if said == label else None)
            if reason is None:
                mark = np.uint64(fingerprint(picture(seed)))
                near = [
                    other for other in seen[label] if distance is not None and differing_bits(mark, other) <= distance
                ]
                seen[label].append(mark)
                reason = "near_duplicate" if near else "over_cap" if kept[number] == CAP else None
                kept[number] += reason is None
            result[number, draw] = reason
    return result


@pytest.mark.parametrize(("shard_draws", "distance"), [(9, 4), (20, 4), (64, 0), (500, None)])
def test_rows_and_drops_are_those_of_a_plain_loop(tmp_path, shard_draws, distance):
    rows, drops = build(tmp_path / "out", shard_draws, distance=distance)
    expected = by_a_plain_loop(distance)
    assert [(row["caption_number"], row["draw"]) for row in rows] == [
        at for at, reason in expected.items() if not reason
    ]
    assert {(row["caption_number"], row["draw"]): row["reason"] for row in drops} == {
        at: reason for at, reason in expected.items() if reason
    }
    if distance == 4:
        assert {"near_duplicate", "over_cap", "no_image", "no_answer", "not_failed"} <= set(expected.values())


def test_what_does_not_show_its_label_is_left_out_with_what_it_shows(tmp_path):
    rows, drops = build(tmp_path / "out", make=partial(crew, verified=True))
    assert rows == []
    unseen = {row["detail"] for row in drops if row["reason"] == "label_not_verified"}
    assert unseen == {"something else", "no answer: dim"}
