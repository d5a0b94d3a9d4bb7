"""Progress in a notebook: a bar for each step of an audit, updated in place. It needs IPython, and no widgets.

Whoever calls an audit without a listener sees them, if the call comes from a notebook.
"""

from __future__ import annotations

import sys
import threading
import time
from html import escape
from pkgutil import resolve_name
from typing import Any

from c2b_ray.audits.kit import progress as say
from c2b_ray.audits.kit.progress import Event
from c2b_ray.report import words

EVERY_S = 0.3


def notebook_bars() -> NotebookBars | None:
    """Returns a listener where this process is the kernel of a notebook; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return NotebookBars() if hasattr(shell, "kernel") else None


class NotebookBars:
    """A listener of events that shows a bar for each step, and warnings below. Calls may come from any thread."""

    def __init__(self) -> None:
        self._rows: dict[str, Event] = {}
        self._warnings: list[str] = []
        self._shown: Any = None
        self._at = 0.0
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if event.kind == "warning":
                self._warnings.append(say.named(event))
            elif event.kind != "progress" or event.progress is not None:
                self._rows[event.step] = event
            if event.kind == "progress" and time.monotonic() - self._at < EVERY_S:
                return
            self._at = time.monotonic()
            self._show()

    def _show(self) -> None:
        page = resolve_name("IPython.display:HTML")(self.html())  # it comes with the notebook, not with this package
        if self._shown is None:
            self._shown = resolve_name("IPython.display:display")(page, display_id=True)
        else:
            self._shown.update(page)

    def html(self) -> str:
        """Returns the bars of all steps so far."""
        rows = "".join(_row(event) for event in self._rows.values())
        warnings = "".join(f"<p>warning: {escape(text)}</p>" for text in self._warnings)
        return f"<table>{rows}</table>{warnings}"


def _row(event: Event) -> str:
    """Returns a step's row: its name, a bar, and how far, how fast and how long."""
    progress = event.progress
    if event.kind == "end":
        bar, note = '<progress value="1" max="1"></progress>', f"done in {event.seconds:.1f} s"
    elif progress is None or progress.total is None:
        bar, note = "<progress></progress>", say.rows(event, True).lstrip(", ")
    else:
        bar = f'<progress value="{progress.done}" max="{max(progress.total, 1)}"></progress>'
        share = f"{words.count(progress.done)} of {words.count(progress.total)} {progress.what}"
        note = f"{share}, {say.rate(progress)} a second{say.left(progress)}{say.busy(progress)}{say.bad(event)}"
    cells = "".join(f"<td>{cell}</td>" for cell in (escape(say.named(event)), bar, escape(note)))
    return f'<tr style="text-align:left">{cells}</tr>'
