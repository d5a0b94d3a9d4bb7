"""Times small labelled audits in one process against a bare loop, to the scores and to the report.

    python bench/small_runs.py [--n N] [--rounds R] [--place FOLDER] [--side bare|audit|report]

The input is made once below --place: 10,000 JPEGs of 128 × 128 pixels (5 kB), their classes and two attributes in a CSV
file, and a small ONNX network of random weights. The bare loop has one thread. It decodes and resizes the files in turn
with the audit's functions, runs 32 of them at once through onnxruntime with one thread, and takes the likeliest label
of each; its time includes imports and reading the table. `audit` measures the call of `c2b_ray.audit` up to the scores;
`report` measures an audit of 600 of the images up to report.html. Each side runs in its own process; the sides take
turns, --rounds times. The script prints medians, and CPU seconds (user + sys), which other processes on the machine
change less than the wall-clock time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

FEW, SIDE, BATCH, LABELS = 600, 96, 32, 10
SIDES = ("bare", "audit", "report")


def make(place: Path, n: int) -> None:
    """Writes the images, `all.csv` and `few.csv`, and `net.onnx`."""
    if (place / "all.csv").is_file():
        return
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(100_200)
    (place / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(n):
        small = random.integers(0, 256, (12, 12, 3), np.uint8)
        data = BytesIO()
        Image.fromarray(small).resize((128, 128), Image.Resampling.BICUBIC).save(data, "JPEG", quality=90)
        (place / "images" / f"{number:05}.jpg").write_bytes(data.getvalue())
        attributes = random.choice(["day", "night"]), random.choice(["fog", "rain", "clear"])
        rows.append((f"images/{number:05}.jpg", f"label_{number % LABELS}", *attributes))
    write_network(place / "net.onnx")
    for name, some in (("few", rows[:FEW]), ("all", rows)):
        with (place / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("image", "target_class", "lighting", "weather"), *some])


def write_network(path: Path) -> None:
    """Writes a network of three convolutions, a mean and ten labels: about 23 million multiplications per picture."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(7)
    nodes, weights, name, channels = [], [], "input", 3
    for layer, width in enumerate((32, 64, 128)):
        values = random.normal(0, (9 * channels) ** -0.5, (width, channels, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        made = helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], strides=[2, 2], pads=[1, 1, 1, 1])
        nodes += [made, helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"])]
        name, channels = f"r{layer}", width
    weights.append(numpy_helper.from_array(random.normal(0, 1, (channels, LABELS)).astype(np.float32), "head"))
    nodes += [
        helper.make_node("GlobalAveragePool", [name], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["logits"]),
    ]
    shape = ["batch", 3, SIDE, SIDE]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LABELS])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


def bare(place: Path) -> None:
    """Returns every image's label, and the number of right ones by class."""
    import numpy as np
    import onnxruntime

    from c2b_ray.models.pixels.resize import ResizedRegion, resize
    from c2b_ray.steps.decode import decode

    mean, std = np.float32((0.485, 0.456, 0.406)), np.float32((0.229, 0.224, 0.225))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(place / "net.onnx"), options, providers=["CPUExecutionProvider"])

    def prepared(path: Path) -> Any:
        pixels = resize(decode(path.read_bytes()), SIDE, SIDE, "bilinear", ResizedRegion(0, 0, SIDE, SIDE))
        return ((pixels * np.float32(1 / 255) - mean) / std).transpose(2, 0, 1)

    with (place / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    right: dict[str, int] = {}
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        (logits,) = session.run(None, {"input": np.stack([prepared(place / row["image"]) for row in part])})
        for row, label in zip(part, logits.argmax(1), strict=True):
            right[row["target_class"]] = right.get(row["target_class"], 0) + (row["target_class"] == f"label_{label}")
    assert sum(right.values()) <= len(rows)


def audited(place: Path, table: str) -> None:
    import c2b_ray

    with tempfile.TemporaryDirectory(dir=place) as out:
        config = {
            "task": "Name the label.",
            "classes": [f"label_{number}" for number in range(LABELS)],
            "classifier": f"onnx:{place}/net.onnx?threads=1&preprocess=imagenet",
            "images": {"source": "labelled", "table": str(place / f"{table}.csv")},
            "check": False,  # its answers are at chance, which stops other audits
        }
        run = c2b_ray.audit(config, Path(out) / "run")
        assert run.manifest["via"] == "here"
        assert run.manifest["counts"]["prediction_errors"] == 0
        assert Path(run.report).is_file()
        print(json.dumps(run.manifest["seconds"]), file=sys.stderr)


def timed(side: str, place: Path) -> dict[str, float]:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    if side == "bare":
        bare(place)
    else:
        audited(place, "few" if side == "report" else "all")
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": round(took, 2), "cpu": round(cpu, 2), "peak_mb": round(after.ru_maxrss / 1024)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench/small"))
    args = parser.parse_args()
    make(args.place, args.n)
    if args.side:
        print(json.dumps(timed(args.side, args.place)))
        return
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for side in SIDES * args.rounds:
        command = [sys.executable, __file__, "--side", side, "--place", str(args.place)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found[side].append(json.loads(done.stdout.splitlines()[-1]))
    medians = {
        side: {what: median(one[what] for one in found[side]) for what in ("wall", "cpu", "peak_mb")} for side in SIDES
    }
    over = {what: round(medians["audit"][what] / medians["bare"][what], 2) for what in ("wall", "cpu")}
    print(json.dumps({"rounds": found, "medians": medians, "audit_over_bare": over}, indent=1))


if __name__ == "__main__":
    main()
