"""A whole audit in this process, from reading its file to the report, never imports Ray."""

import json
import subprocess
import sys
from pathlib import Path

from c2b_ray.world.table import write_sample

PROGRAM = """
import sys
import c2b_ray
run = c2b_ray.audit("audit.json", "run", via="here")
assert run.manifest["status"] == "finished" and run.manifest["via"] == "here"
loaded = [name for name in sys.modules if name == "ray" or name.startswith("ray.")]
print(run.scores.num_rows, loaded)
"""


def test_ray_is_not_imported(tmp_path: Path) -> None:
    write_sample(tmp_path / "scenes.parquet", 60, seed=1006)
    config = {
        "task": "Tell buses from boats.",
        "classes": ["bus", "boat"],
        "classifier": "world:resnet-control-0",
        "images": {"source": ["labelled"], "table": "scenes.parquet"},
        "attributes": {"lighting": ["day", "night"]},
    }
    (tmp_path / "audit.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=250
    )
    assert (done.returncode, done.stdout) == (0, "4 []\n"), done.stderr
