"""The golden net: what the product says, frozen, so that moves and renamings can be shown to change nothing.

    python tests/net/replay.py                 plays every session and compares; exit 1 and the differences if any
    python tests/net/replay.py 'clip bias'     only this session (`errors`: bad inputs; `api`: the OpenAPI document)
    python tests/net/replay.py --make          plays them and writes golden.json.xz anew

A difference that is meant needs a decision note, and `--make` in a commit of its own.
"""

from __future__ import annotations

import argparse
import difflib
import json
import lzma
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path(tempfile.gettempdir(), "c2b-golden-net", "session")
"""Always the same one: a run's id depends on where the files of its config lie."""
GOLDEN = HERE / "golden.json.xz"
SETTINGS = {
    "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0", "PYTHONHASHSEED": "0",
}  # fmt: skip
_SHOWN = 40


def played(names: list[str]) -> dict[str, Any]:
    """Plays the sessions of these names (all where there are none); returns name → what came of it."""
    from net_errors import bad_inputs
    from net_record import play
    from net_sessions import SESSIONS

    result: dict[str, Any] = {}
    for name, session in SESSIONS.items():
        if not names or name in names:
            result[name] = play(session, FOLDER)
            print(f"played {name}", file=sys.stderr, flush=True)
    if not names or "errors" in names:
        result["errors"] = {}
        for name, session in bad_inputs().items():
            (one,) = play(session, FOLDER)["commands"].values()
            result["errors"][name] = one
    if not names or "api" in names:
        result["api"] = openapi()
    return result


def openapi() -> Any:
    """Returns the OpenAPI document of the shared endpoint."""
    from endpoint_app import started

    with tempfile.TemporaryDirectory(prefix="net-") as folder:
        return started(Path(folder)).app.openapi()


def differences(golden: Any, found: Any) -> list[str]:
    """Returns the lines of a unified difference of two recordings."""
    before, after = (json.dumps(one, indent=0, ensure_ascii=False).splitlines() for one in (golden, found))
    return list(difflib.unified_diff(before, after, "golden", "found", n=2, lineterm=""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sessions", nargs="*")
    parser.add_argument("--make", action="store_true")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):  # before anything is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | SETTINGS)
    golden = json.loads(lzma.decompress(GOLDEN.read_bytes())) if GOLDEN.exists() else {}
    found = played(asked.sessions)
    if asked.make:
        text = json.dumps(golden | found, ensure_ascii=False, sort_keys=True)
        GOLDEN.write_bytes(lzma.compress(text.encode(), preset=9))
        print(f"{GOLDEN.name}: {len(found)} parts made, {GOLDEN.stat().st_size:,} bytes")
        return 0
    changed = 0
    for name, recording in found.items():
        lines = differences(_sorted(golden.get(name)), _sorted(recording))
        changed += bool(lines)
        print(f"{name}: {'as before' if not lines else 'CHANGED'}")
        print("\n".join(lines[:_SHOWN] + ([f"… {len(lines) - _SHOWN:,} more lines"] if len(lines) > _SHOWN else [])))
    return int(changed > 0)


def _sorted(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))


if __name__ == "__main__":
    sys.exit(main())
