"""Checks a run of `c2b prompts` before anything starts, and estimates how long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from statistics import mean

from c2b_ray.audits.kit.backend import AUTO, check_via
from c2b_ray.audits.kit.models import check_specs
from c2b_ray.audits.kit.session import answers, generations
from c2b_ray.audits.prompts.config import PromptsConfig, read_prompts_config
from c2b_ray.audits.prompts.measurement import PICTURES
from c2b_ray.audits.prompts.search import check_search
from c2b_ray.audits.prompts.steps.search import FIRST_SHARE
from c2b_ray.audits.prompts.steps.tasks import targets_of
from c2b_ray.report import words
from c2b_ray.report.words import Column, Summary


def checked(config: PromptsConfig, via: str) -> PromptsConfig:
    """Returns the config. Raises ConfigError before anything is started or written."""
    check_via(via)
    check_specs(config)
    check_search(config)
    return config


# Computes how many images a search for prompts may generate, from its config alone, which decides whether it is
# small.


_PARTS = 6
"""Parts of a prompt that can be left out; few prompts have more."""


def most_images(config: PromptsConfig) -> int:
    """Returns an approximate upper limit; searches whose prompts end early, and pools with few words, use fewer
    images."""
    return sum(images_by_part(config).values())


def images_by_part(config: PromptsConfig) -> dict[str, int]:
    """Returns the most images of each part of a run; 0 for parts that the config leaves out."""
    generators, targets = len(config.generators), len(targets_of(config.attributes, config.intersections))
    written = [method for method in config.methods if method != "bgps"]
    searched = config.search.weights if "bgps" in config.methods else []
    evaluation = config.evaluation
    trained = config.guide == "heads" and "bgps" in config.methods and config.heads.files is None
    searches = len(searched) * targets * ceil(evaluation.prompts / config.search.keep) * _of_search(config)
    edits = 0 if config.modifiers is None else config.modifiers.prompts * targets * generators
    of_edit = 0 if config.modifiers is None else (1 + _PARTS) * config.modifiers.images + 2 * PICTURES
    first, second = _of_words(config)
    return {
        "heads": generators * images_of_heads(config) if trained else 0,
        "searches": generators * searches,
        "prompts judged": generators
        * (len(written) + len(searched))
        * targets
        * evaluation.prompts
        * evaluation.images,
        "words, first look": first,
        "words, second look": second,
        "parts of prompts": edits * of_edit,
    }


def _of_words(config: PromptsConfig) -> tuple[int, int]:
    """Returns the images of both looks at words, if every word were followed up.

    A context is drawn with each word of a family, or with fewer and two to compare them with, and once without any: for
    a family of one word, twice.
    """
    section = config.associations
    if section is None:
        return 0, 0
    images_per_context = len(section.generators or [""]) * section.images * 2 * section.words
    return images_per_context * section.contexts, images_per_context * section.most_followed


def images_of_heads(config: PromptsConfig) -> int:
    """Returns the number of images that the heads of one generator learn from."""
    return config.heads.prompts * config.heads.images


def _of_search(config: PromptsConfig) -> int:
    search = config.search
    of_candidate = float(search.images)
    if search.raced:  # half of the candidates, half of these again, and the winners once more
        of_candidate = min(of_candidate, 2 * max(1, search.images // FIRST_SHARE))
    return int(search.most_tokens * search.beams * search.expansion * of_candidate)


# Estimates how long a run of `c2b prompts` takes: its most images, and a short trial of its generators and judge.


@dataclass(frozen=True)
class Estimate:
    """`images`: the most of each part of a run. `seconds_an_image`: of one process, to make an image and to have the
    judge say what it shows of each attribute; without the judge where it is a service, which is not called for
    nothing."""

    images: Mapping[str, int]
    seconds_an_image: float

    @property
    def seconds(self) -> dict[str, float]:
        """The most seconds of each part, in one process."""
        return {name: count * self.seconds_an_image for name, count in self.images.items()}


def estimate(config: PromptsConfig, via: str = AUTO) -> Estimate:
    """Returns the estimate. Raises what checking the config and loading its models would raise."""
    config = checked(config, via)
    making = mean(1 / generations(spec) for spec in config.generators.values())
    answers_per_second = answers(config.judge)
    return Estimate(
        images_by_part(config),
        making + (0.0 if answers_per_second is None else len(config.attributes) / answers_per_second),
    )


def estimate_summary(file: str, via: str = AUTO) -> Summary:
    """Returns the estimate of a prompts file as a table: of each part the most images and the most time."""
    config = read_prompts_config(file)
    cost = estimate(config, via)
    images, seconds = cost.images, cost.seconds
    columns = [Column("part"), Column("most images", number=True), Column("most time", number=True)]
    rows = [(name, words.count(count), words.duration(seconds[name])) for name, count in images.items()]
    reads = "; a search reads activations, which cost less than images" if config.guide == "heads" else ""
    total = f"At most {words.plural(sum(images.values()), 'image')}{reads}."
    total_time = words.duration(sum(seconds.values()))
    speed = f"At most {total_time} of one process, at {cost.seconds_an_image:.2g} s an image in a short trial."
    counts = {"images_at_most": images, "total": sum(images.values()), "most_seconds": seconds}
    return Summary("Images to generate", columns, rows, [""] * len(rows), [total, speed], to_json=counts)
