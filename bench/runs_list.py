"""How long `c2b runs` takes on many runs: CPU seconds of the list and of the page, and the page's bytes.

    python bench/runs_list.py [RUNS]        # 10,000 by default

Every run is a copy of one finished audit's manifest under a date of its own, as this release writes it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from c2b_ray.audits.runs import write_index
from c2b_ray.storage.run import list_runs

MODEL = {"spec": "world:resnet-planted-0", "revision": "0" * 20, "facts": [{"name": "labels", "value": "10"}] * 8}
CONFIG = {"task": "t", "classes": [f"class {i}" for i in range(20)], "classifier": {"old": "world:a", "new": "world:b"}}
TABLES = {f"table_{i}": {"rows": 1000, "bytes": 1000, "sha256": "0" * 64} for i in range(16)}
HEADLINE = {"text": "boat, lighting night: 9% right (φ −0.91). 2 findings, 0 clear, 40 undetermined"}


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        for i in range(number):
            run = Path(folder, "runs", f"team-{i % 20}", f"run-{i}")
            run.mkdir(parents=True)
            at = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=i)).isoformat(timespec="seconds")
            findings = {"findings": {"old": i % 7, "new": i % 5}}
            manifest = {
                "format": 4,
                "kind": "c2b",
                "run_id": f"{i:020x}",
                "status": "finished",
                "created": at,
                "finished": at,
                "config": CONFIG,
                "models": {"classifier old": MODEL, "classifier new": MODEL},
                "tables": TABLES,
                "headline": HEADLINE | findings,
            }
            (run / "run.json").write_text(json.dumps(manifest, indent=2))
            (run / "report.html").touch()
        root = str(Path(folder, "runs"))
        began = time.process_time()
        assert len(list_runs(root)) == number
        listed = time.process_time()
        write_index(root, Path(folder, "index.html"))
        paged = time.process_time()
        size = Path(folder, "index.html").stat().st_size
    print(
        f"{number} runs: list {listed - began:.1f} s, with page {paged - listed:.1f} s of CPU; {size / 2**20:.1f} MiB"
    )


if __name__ == "__main__":
    main()
