"""The page of a failure dataset's images, by label, wrong answer and caption.

Filters and their counts are offered for up to `MOST_ROWS` rows; larger datasets are only shown in order. The page reads
the columns that it filters by, and the rows that it shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
from starlette.responses import Response

from c2b_ray.endpoint.api.problems import ProblemError
from c2b_ray.endpoint.api.reads import ROWS
from c2b_ray.endpoint.api.results import read
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest
from c2b_ray.endpoint.web.tables import MOST_ROWS

PAGE, CHOICES = 24, 200
NAMES = ("label", "predicted", "caption")
UNDECIDED = "several labels alike"


@dataclass(frozen=True)
class Choice:
    """Filters of images. An empty text means any."""

    label: str
    predicted: str
    caption: str

    def link(self, start: int) -> str:
        values = {name: value for name, value in vars(self).items() if value}
        return f"?{urlencode({**values, 'start': start})}"


def gallery_page(visit: PageRequest) -> Response:
    results = read(visit.context, visit.caller, visit.part("job_id"))
    if results.dataset is None:
        raise ProblemError(409, "no_dataset", "only a finished dataset has a gallery")
    total, start = results.rows(ROWS), visit.number("start", 0, 1_000_000_000)
    choice = Choice(*(visit.query(name) for name in NAMES))
    choices: dict[str, list[tuple[str, int]]] = {}
    rows: range | list[int] = range(total)
    if total <= MOST_ROWS:
        values = {name: _texts(results.table(ROWS, [name])[name].to_pylist()) for name in NAMES}
        choices = {name: Counter(texts).most_common(CHOICES) for name, texts in values.items()}
        is_chosen = np.ones(total, bool)
        for name, chosen_text in vars(choice).items():
            if chosen_text:
                is_chosen &= np.array([text == chosen_text for text in values[name]], bool)
        rows = np.flatnonzero(is_chosen).tolist()
    elif any(vars(choice).values()):
        detail = f"the images of a dataset of {total:,} rows cannot be filtered here; export it to filter them"
        raise ProblemError(422, "too_many_rows", detail)
    images = results.rows_at(ROWS, rows[start : start + PAGE]).to_pylist()
    return shown(visit, "gallery.html.j2", {
        "job": results.job, "images": images, "total": len(rows), "start": start, "page": PAGE, "choice": choice,
        "choices": choices, "undecided": UNDECIDED,
    })  # fmt: skip


def _texts(values: list[str | None]) -> list[str]:
    return [UNDECIDED if value is None else value for value in values]
