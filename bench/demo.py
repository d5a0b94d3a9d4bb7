"""Times `make demo` after installation, from an empty folder to the report; prints its findings.

python bench/demo.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        command = [sys.executable, "-m", "c2b_ray.cli", "demo", "--out", f"{place}/demo", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stderr)
    said = json.loads(done.stdout)
    print(json.dumps({"seconds": round(seconds, 1), "verdicts": said["verdicts"]}))


if __name__ == "__main__":
    main()
