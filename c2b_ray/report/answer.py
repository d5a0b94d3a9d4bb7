"""The block at the head of a page: what was found, in at most three sentences, each with its pictures."""

from __future__ import annotations

from dataclasses import dataclass

from c2b_ray.report.pictures import Gallery
from c2b_ray.report.words import Sentence

MOST = 3


@dataclass(frozen=True)
class Answer:
    """One sentence of the headline. `verdict`: for, against, none or undetermined; `sign` stands for it; `beneath`:
    the evidence and what else belongs to it; `link`: the id of its details on the page, empty without."""

    verdict: str
    sign: str
    sentence: Sentence
    beneath: tuple[str, ...] = ()
    link: str = ""
    galleries: tuple[Gallery, ...] = ()

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.sentence)
