"""What an audit can ask of classifiers that give each label on its own, and of images that show several.

Such a classifier is right or wrong about a label, whatever else it says of the image. What rests on one answer for an
image, or on one class, is refused here, in words.
"""

from __future__ import annotations

from collections.abc import Mapping

from c2b_ray.config import AuditConfig
from c2b_ray.config.audit import OF_CLASS
from c2b_ray.errors import ConfigError
from c2b_ray.roles import Description
from c2b_ray.storage.labelled import table_opener

_NEED_ONE_ANSWER = {
    "perturb": "compares the one answer to a picture with the one before",
    "label_errors": "looks for answers that contradict the one label of an image",
    "images.read": "corrects accuracies of images of one class",
    "images.words": "looks for words of images that are right or wrong as a whole",
    "images.slices": "looks for clusters of images that are right or wrong as a whole",
}
_SIGMOID = "add ?head=sigmoid to its spec if its outputs are sigmoids"


def check_heads(config: AuditConfig, known: Mapping[str, Description]) -> None:
    """Raises ConfigError where the classifiers' labels, the images' classes and the config do not go together.

    `known`: the classifiers that can be described, by name. It reads the table's header, and loads no model.
    """
    heads = {name: one.head for name, one in known.items()}
    each = [name for name, head in heads.items() if head == "sigmoid"]
    several = config.images.table is not None and table_opener(config.images.model_dump())().has_several
    if each and len(each) < len(heads):
        other = next(name for name in heads if name not in each)
        raise ConfigError(
            "classifier",
            f"{each[0]} gives each label on its own, and the labels of {other} exclude each other: their answers are "
            "not of one kind. Audit them in two runs",
        )
    if several and heads and not each:
        name = next(iter(heads))
        raise ConfigError(
            "images.table",
            f"its images may show several classes, and the labels of {name} exclude each other; {_SIGMOID}, or give a "
            "table with one class for each image",
        )
    if each:
        _check_each(config, each[0])
    elif heads and config.metric not in OF_CLASS and len(config.classes) == 1:
        raise ConfigError(
            "metric", f"{config.metric} needs images of other classes too; name two classes or more, or `all`"
        )


def _check_each(config: AuditConfig, name: str) -> None:
    asked = {"perturb": config.perturb, "label_errors": config.label_errors}
    asked |= {f"images.{field}": getattr(config.images, field) for field in ("read", "words", "slices")}
    for field, given in asked.items():
        if given is not None:
            raise ConfigError(
                field, f"it {_NEED_ONE_ANSWER[field]}, and {name} gives each label on its own; leave it out"
            )
    if config.images.sources != ("labelled",):
        raise ConfigError(
            "images.source",
            f"{name} gives each label on its own, and what else retrieved and generated images show is not known; use "
            "source: labelled",
        )
    if config.images_per_caption is not None and config.metric not in OF_CLASS:
        raise ConfigError(
            "images_per_caption",
            f"{config.metric} depends on how frequent a label is, which a part of the images of each cell changes; "
            "leave it out",
        )
