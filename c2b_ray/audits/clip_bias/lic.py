"""LIC of captioners: the texts that attributes are guessed from, and rows of the resulting scores.

Guessing is a separate stage, with a row per captioner (or people), attribute and draw of folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias.images import Images
from c2b_ray.config.clip_bias import ClipBiasConfig
from c2b_ray.metrics import Floats, Ints
from c2b_ray.pipelines.images import OnProgress
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.stage import Rows, Runner, StageConfig
from c2b_ray.roles import GroupGuesser
from c2b_ray.schemas import seed_of
from c2b_ray.schemas.clip_bias import CLIP_GUESSES
from c2b_ray.steps.clip_bias.attributes import Attribute
from c2b_ray.steps.clip_bias.leakage import Guessing, guess, leak_of, table
from c2b_ray.steps.clip_bias.rows import BiasRow, Key, Measured
from c2b_ray.steps.clip_bias.words import mask_of, masked, says_nothing, vocabulary_of
from c2b_ray.store.clip_bias_run import ClipBiasRun
from c2b_ray.store.parts import read_stage

STAGE = StageConfig(CLIP_GUESSES, placement=Placement(batch=1), rows_per_file=64)
LEAST_IMAGES = 20


@dataclass(frozen=True)
class Guesses:
    """Makes and keeps guesses: by which model, and about which images."""

    run: ClipBiasRun
    runner: Runner
    load: Callable[[], GroupGuesser]
    config: ClipBiasConfig
    on_progress: OnProgress
    images: Images | None = None

    def made(self, wanted: list[Guessing]) -> dict[str, Floats]:
        """Returns the scores of each text, by guess."""
        rows, out = table(wanted), self.run.location("guesses")
        self.run.begin_writing()
        self.runner.run(
            Rows.of(rows, 1), guess, self.load, out,
            id_column="guess_id", config=STAGE, on_progress=self.on_progress,
        )  # fmt: skip
        held = read_stage(out, ["guess_id", "scores"])
        held = held.filter(pc.is_in(held["guess_id"], rows["guess_id"].combine_chunks()))  # others' are many
        return {row["guess_id"]: np.array(row["scores"], np.float64) for row in held.to_pylist()}


def measure_leakage(
    measured: Measured, guesses: Guesses, key: Key, attribute: Attribute, captions: Mapping[str, Mapping[int, str]]
) -> None:
    """Adds a row per captioner: its leakage minus that of people's captions of the same images.

    Attributes are guessed from one human caption per image in each draw of folds, and draws differ: from all five
    captions the guesser would learn from five times as much text as from the captioner's.
    """
    assert guesses.images is not None
    references = guesses.images.captions or []
    mask = mask_of(attribute.values, guesses.images.config.mask.get(attribute.name, ()))
    for model, said in captions.items():
        known = vocabulary_of(list(said.values()))
        ours = {image: masked(text, mask) for image, text in said.items() if attribute.codes[image] >= 0}
        theirs = {image: [masked(text, mask, known) for text in references[image]] for image in ours}
        theirs = {image: [text for text in some if not says_nothing(text)] for image, some in theirs.items()}
        held = [image for image, text in ours.items() if not says_nothing(text) and theirs[image]]
        if lost := len(ours) - len(held):
            measured.notes.append(
                f"{key.dataset}, {attribute.name}: {lost:,} of {len(ours):,} images are left out of LIC of {model}: a "
                "caption of theirs has no words left after masking"
            )
        problem = attribute.problem(np.array(held, np.int64)) if held else "no caption has words left after masking"
        if problem is None and len(held) < LEAST_IMAGES:
            problem = f"{len(held):,} images with captions; LIC needs {LEAST_IMAGES:,}"
        if problem is not None:
            measured.unknown([model], key, len(held), problem)
            continue
        texts = ([ours[image] for image in held], [theirs[image] for image in held])
        measured.biases.append(_row(model, key, guesses, (attribute, held), texts))


def _row(
    model: str, key: Key, guesses: Guesses, at: tuple[Attribute, list[int]], texts: tuple[list[str], list[list[str]]]
) -> BiasRow:
    (attribute, held), (ours, theirs), settings = at, texts, guesses.config.leakage
    groups = tuple(attribute.codes[held].tolist())
    assert guesses.images is not None
    copies = tuple(guesses.images.copies[held].tolist()) if guesses.images.copied else ()

    def both_of(draw: int, swap: bool) -> tuple[Guessing, Guessing]:
        seed = seed_of("clip-bias lic", guesses.config.seed, key.dataset, key.attribute, draw, swap)
        chosen = [some[(seed + row) % len(some)] for row, some in enumerate(theirs)]
        moved = np.random.default_rng(seed).random(len(ours)) < 0.5 if swap else np.zeros(len(ours), bool)
        sides = zip(ours, chosen, moved.tolist(), strict=True)
        one, other = zip(*((b, a) if change else (a, b) for a, b, change in sides), strict=True)
        fixed = (groups, len(attribute.values), settings.folds, seed, settings.guesser, copies)
        return Guessing(one, *fixed), Guessing(other, *fixed)

    draws = [both_of(draw, swap=False) for draw in range(settings.seeds)]
    swaps = [both_of(draw, swap=True) for draw in range(settings.swaps)]
    made = guesses.made([one for both in (*draws, *swaps) for one in both])
    scores, people = (np.stack([made[both[side].guess_id] for both in draws]) for side in (0, 1))
    null = np.array([made[a.guess_id].mean() - made[b.guess_id].mean() for a, b in swaps])
    leak = leak_of(scores, people, null, 1 - guesses.config.alpha)
    notes = ["constant captions"] if len(set(ours)) == 1 else []
    notes += _rare(attribute, guesses.images.copies[held], attribute.codes[held], settings.folds)
    note = "; ".join(notes) or None
    return BiasRow(model, key, leak.value, leak.low, leak.high, len(held), 0.0, leak.p_value, note=note)


def _rare(attribute: Attribute, copies: Ints, codes: Ints, folds: int) -> list[str]:
    """Returns a note on values with fewer different images than folds: guessers have next to nothing to learn them
    from, so that LIC is near 0 whatever captions say of these values."""
    counts = [len(np.unique(copies[codes == number])) for number in range(len(attribute.values))]
    few = [f"{value!r} ({count})" for value, count in zip(attribute.values, counts, strict=True) if count < folds]
    return [f"says nothing of {', '.join(few)}: fewer images than folds"] if few else []
