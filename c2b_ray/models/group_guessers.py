"""Loads the model that guesses groups from texts by its spec: `bag-of-words`, or a BERT (`bert:…`)."""

from __future__ import annotations

from c2b_ray.errors import SpecError
from c2b_ray.models.bag_of_words import BagOfWords
from c2b_ray.models.catalog import parse
from c2b_ray.roles import GroupGuesser


def load(spec: str) -> GroupGuesser:
    """Loads a group guesser. Raises SpecError for a spec that names neither."""
    if spec == BagOfWords.name:
        return BagOfWords()
    parsed = parse(spec)
    if parsed.scheme != "bert":
        raise SpecError(f"{spec}: expected {BagOfWords.name}, bert:org/name or bert:local-dir:PATH")
    from c2b_ray.models.bert_guesser import load as load_bert

    return load_bert(parsed)
