"""The report of a run of `c2b failures`: tables → view model → HTML, one self-contained file.

    rows       hypotheses, typed                                families   which captions say the same: findings
    tallies    what rounds add up to                            sentences  findings in words
    facts      all of it together                               view       the page as a tree of text

It reads a run and writes its report.html; it knows nothing of models or of how the run was computed.
"""

from __future__ import annotations

from c2b_ray.report.failures.examples import COLUMNS, MOST_SHOWN, Examples
from c2b_ray.report.failures.facts import Facts, Tables, facts_of
from c2b_ray.report.failures.tallies import COLUMNS as COUNTED
from c2b_ray.report.failures.view import build_view
from c2b_ray.report.kit.page import STYLES, render
from c2b_ray.report.kit.pictures import chosen_rows
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.store.files import write_bytes
from c2b_ray.store.run import Run


def write_report(run: Run) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path.

    Of the rounds no picture is read but those of captions that are shown. StorageError where the file system refuses.
    """
    facts = read_facts(run)
    shown = facts.shown()
    captions = list(dict.fromkeys(caption_id for caption_id, _, _ in shown))
    examples = Examples(chosen_rows(run, "rounds", "caption_id", captions, COLUMNS), shown)
    pictures = {
        example.key: example.image
        for key, targets in shown.items()
        for target in (*targets, None)
        for example in examples.of(key, target, MOST_SHOWN)
    }
    view = build_view(facts, examples, thumbnails(pictures))
    write_bytes(run.report, render("failures.html.j2", view, (*STYLES, "failures.css")).encode())
    return run.report


def read_facts(run: Run) -> Facts:
    return facts_of(
        run.manifest,
        Tables(
            candidates=run.read("candidates"),
            rounds=run.read("rounds", COUNTED),
            hypotheses=run.read("hypotheses"),
            reliability=run.read("reliability"),
            transfers=run.read("transfers"),
        ),
    )
