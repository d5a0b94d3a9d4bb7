"""Estimates how long a run of `c2b prompts` takes: its most images, and a short trial of its generators and judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.session import answers, generations
from c2b_ray.audits.prompts.config import PromptsConfig, read_prompts_config
from c2b_ray.audits.prompts.preflight import checked, images_by_part
from c2b_ray.report import words
from c2b_ray.report.words import Column, Summary


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
