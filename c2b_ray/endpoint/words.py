"""Says in the words of requests what commands say in those of the command line: fields instead of options.

Commands raise errors about `--fail-on`; a request has the field `fail_on`. It knows names, and no error.
"""

from __future__ import annotations

import re

FIELDS = {
    "--allow-unchecked": "allow_unchecked", "--class": "target_class", "--classifier": "classifier",
    "--classifier-a": "classifier_a", "--classifier-b": "classifier_b", "--fail-on": "fail_on", "--format": "form",
    "--label-map": "label_map", "--target": "target",
}  # fmt: skip
"""The options that an error of a command may name, and the fields of a body, query or config that they are here."""
_ARGUMENTS = {"A": "a", "B": "b", "RUN": "job_id", "SENTENCE": "sentence"}
_OPTION = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(FIELDS, key=len, reverse=True))})(?![\w-])")
_PHRASES = {
    "give another --out": "submit it again", "run the same command again, it resumes": "submit it again, it resumes",
}  # fmt: skip


def fields_of(name: str) -> list[str]:
    """Returns the fields of a request that an error's field means, such as `--classifier-a, --classifier-b`."""
    return [_ARGUMENTS.get(one, FIELDS.get(one, one)) for one in name.split(", ")]


def in_words_of_requests(text: str) -> str:
    """Returns a message with fields in place of options."""
    for of_command, of_request in _PHRASES.items():
        text = text.replace(of_command, of_request)
    return _OPTION.sub(lambda option: FIELDS[option[0]], text)
