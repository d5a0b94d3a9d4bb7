"""Reads hidden associations from a YAML file.

Knows the fields of the file and names the one that is wrong; does not know what a link does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from c2b_ray.config.problems import first_problem
from c2b_ray.config.strict import StrictModel
from c2b_ray.errors import ConfigError
from c2b_ray.storage.documents import read_yaml
from c2b_ray.world.associations import NEUTRAL, Link, check_word


class _LinkFields(StrictModel):
    word: str
    attribute: str
    value: str
    strength: float
    form: str = "adjective"


class _FileFields(StrictModel):
    links: list[_LinkFields]
    neutral: dict[str, list[str]] | None = None


def read_links(path: str | Path) -> tuple[tuple[Link, ...], dict[str, str]]:
    """Reads the links of a YAML file, and its decoys (word → form); NEUTRAL where the file names none.

            links:
              - {word: rusty, attribute: lighting, value: night, strength: 0.9, form: adjective}
            neutral: {adjective: [quiet], object: [barrel], activity: [market]}

    ConfigError names the field, and the entry that is wrong.
    """
    try:
        fields = _FileFields.model_validate(read_yaml(path))
    except ValidationError as error:
        raise first_problem(error, str(path), _FileFields) from error
    links: list[Link] = []
    for number, entry in enumerate(fields.links):
        try:
            link = Link(entry.word, entry.attribute, entry.value, entry.strength, entry.form)
        except ValueError as error:
            raise ConfigError(f"links.{number}", str(error), location=str(path)) from error
        if any((link.word, link.attribute) == (other.word, other.attribute) for other in links):
            why = f"the word {link.word!r} is linked to {link.attribute} twice"
            raise ConfigError(f"links.{number}", why, location=str(path))
        links.append(link)
    return tuple(links), _decoys(fields.neutral, links, str(path))


def _decoys(neutral: Mapping[str, Sequence[str]] | None, links: Sequence[Link], path: str) -> dict[str, str]:
    linked = {link.word for link in links}
    if neutral is None:
        return {word: form for word, form in NEUTRAL.items() if word not in linked}
    result = {}
    for form, words in neutral.items():
        for word in words:
            try:
                check_word(word, form)
            except ValueError as error:
                raise ConfigError(f"neutral.{form}", str(error), location=path) from error
            if word in linked:
                raise ConfigError(f"neutral.{form}", f"the word {word!r} is linked as well", location=path)
            result[word] = form
    return result
