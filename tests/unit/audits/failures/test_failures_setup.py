"""A search for failures says that its classifier is set up wrongly, from baseline images or labelled ones."""

import json
from pathlib import Path

import numpy as np

import c2b_ray
from c2b_ray.audits.runs import summary
from c2b_ray.models import catalog
from c2b_ray.world.table import write_sample


def exchanged(control):
    order = [1, 0, *range(2, len(control.labels))]
    return c2b_ray.InMemory(
        lambda images: control.logits(list(images), [""] * len(images))[:, order],
        labels=list(control.labels), revision="exchanged",
    )  # fmt: skip


def test_labelled_and_generated_images(tmp_path):
    control = catalog.classifier("world:resnet-control-0")
    write_sample(tmp_path / "scenes.parquet", 900, 1011)
    images = {"labelled": {"table": str(tmp_path / "scenes.parquet")}}, {"generate": {"model": "world:renderer"}}
    for number, source in enumerate(images):
        config = {"labels": ["bus", "boat"], "images": source, "budget": {"draws": 1200}, "hierarchy": "world"}
        if number:
            config["captioner"] = "world:clip"
        run = c2b_ray.find_failures(config, tmp_path / f"run-{number}", "here", classifier=exchanged(control))
        (found,) = run.manifest["setup"]
        assert (found["kind"], found["hopeless"]) == ("exchanged", True)
        assert ("Nobody looked whether these images" in found["cause"]) is bool(number)
        said = summary(run).first[0]
        assert said.startswith("set-up: 'bus' and 'boat' are ")
        assert "taken for each other" in said
        page = Path(run.report).read_text()
        assert page.index("The set-up looks wrong") < page.index('id="found"')
        json.dumps(run.manifest)
        assert np.isfinite(run.read("rounds")["draws"].to_numpy()).all()
