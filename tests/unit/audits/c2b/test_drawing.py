from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from c2b_ray.audits.c2b.drawing import SourcePlan, from_generator
from c2b_ray.audits.c2b.labelled import from_labels
from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.audits.c2b.sampling.selection import cells_of
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.calibration import SeenImages
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.audits.kit.backend import HereBackend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import read_audit
from c2b_ray.engine.here import InProcess
from c2b_ray.image_check import checked_image
from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.roles import Description
from c2b_ray.steps.caption import caption
from c2b_ray.steps.classify import classification, predict
from c2b_ray.steps.draw import generate
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.observe import checks, verify, wanted
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CALIBRATION, DRAWS, IMAGES
from c2b_ray.world.table import write_sample


def asked_of(images, **changes):
    asked = {
        "task": "t",
        "classes": ["bus"],
        "classifier": "m",
        "images": images,
        "attributes": {"size": ["small", "large"]},
    }
    return read_audit(asked | changes)


@pytest.fixture
def labels(tmp_path):
    write_sample(tmp_path / "scenes.parquet", 200, seed=1003)
    return {"source": "labelled", "table": str(tmp_path / "scenes.parquet")}


NOTHING = SeenImages(pa.table({"image_id": [], "fingerprint": []}).select, None, {})


def plan_of(asked, path):
    with open_c2b_run(path, "0123456789abcdef0123", asked.model_dump(mode="json")) as run:
        return from_labels(asked, run, HereBackend(), [], Steps()), run.captions


def all_of(captions, n=2**31 - 1):
    return dict.fromkeys(cells_of(captions), n)


def test_a_budget_draws_in_random_order_and_the_first_stay_the_first(labels, tmp_path):
    def ranks(name, **changes):
        plan, captions = plan_of(asked_of(labels, **changes), tmp_path / name)
        draws = pa.Table.from_batches(plan.select(all_of(captions), NOTHING).drawn.to_batches())
        return {(row["caption_id"], row["image_id"]): row["rank"] for row in draws.to_pylist()}

    budget = {"images": 1000}
    plain, one, same, other = (
        ranks("plain"),
        ranks("one", budget=budget),
        ranks("same", budget=budget),
        ranks("other", budget=budget, seed=1),
    )
    assert one == same
    assert plain.keys() == one.keys() == other.keys()
    assert plain != one != other
    for captions in {caption_id for caption_id, _ in one}:
        found = [rank for (caption_id, _), rank in one.items() if caption_id == captions]
        assert sorted(found) == list(range(len(found)))  # each rank once


def test_a_cell_draws_its_first_images_and_gathers_these_alone(labels, tmp_path):
    plan, captions = plan_of(asked_of(labels, budget={"images": 1000}), tmp_path / "run")
    first, second = cells_of(captions)
    few, more = (plan.select(dict(zip((first, second), n, strict=True)), NOTHING).drawn for n in ((2, 0), (4, 1)))
    assert few["caption_id"].to_pylist() == cells_of(captions)[first] * 2
    assert set(few["image_id"].to_pylist()) < set(more["image_id"].to_pylist())
    assert more.num_rows == 5
    collected = []
    spied = SourcePlan(plan.select, plan.wanted, lambda *given: collected.append(given), "fetch images")
    steps = Steps()
    with open_c2b_run(tmp_path / "other", "1" * 20, {}) as run:
        spied.gather(few, run, steps)
    ((needed, out, _),) = collected
    assert sorted(needed["image_id"].to_pylist()) == sorted(few["image_id"].to_pylist())
    assert needed.schema == plan.wanted.schema
    assert Path(out).name == "images"
    assert list(steps.seconds) == ["fetch images"]


class Generator:
    """Of every caption, the second picture is black and the third is NaN; small buses are dark."""

    revision = "g"

    def __init__(self):
        self.calls = {}

    def generate(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        number = self.calls[request.prompt] = self.calls.get(request.prompt, -1) + 1
        values = np.random.default_rng(request.seed).random((8, 8, 3)) * (0.3 if "small" in request.prompt else 1.0)
        return checked_image({1: values * 0, 2: values * np.nan}.get(number, values), None)


class Classifier:
    """Takes what is dark for a boat."""

    labels = ("bus", "boat")
    revision = "c"

    def logits(self, images, keys):
        return np.array([[image.mean() - 64, 0.0] for image in images], np.float32)


class Models:
    runner = InProcess()

    def describe(self, role, spec):
        return Description("g")

    def image_generator(self, spec):
        assert spec == "toy:painter"
        return Generator


def test_images_that_could_not_be_made_are_errors_all_the_way_to_the_scores(tmp_path):
    images = {"source": "generate", "generator": "toy:painter"}
    asked = asked_of(images, images_per_caption=40, captions_per_cell=1, classes=["bus", "boat"])
    proposals, _ = propose(asked.task, ["bus"], None, asked.attributes, 0)
    captions, _ = caption(asked.task, proposals, None, 1, 0)
    with open_c2b_run(tmp_path / "run", "0123456789abcdef0123", {}) as run:
        run.write("captions", captions)
        plan = from_generator(asked, run, Models(), Steps())
        assert run.manifest["models"]["generator"] == {"spec": "toy:painter", "revision": "g"}
    draws = plan.select(all_of(captions, 40), NOTHING).drawn
    assert draws.schema == DRAWS
    images = generate(plan.wanted, Generator())
    assert images.schema == IMAGES
    reasons = [row["error"] for row in images.to_pylist() if row["error"]]
    assert len(reasons) == images["bytes"].null_count == 4
    assert sum("black" in reason for reason in reasons) == sum("NaN" in reason for reason in reasons) == 2
    captioner = ScriptedCaptioner(answers=lambda given: see(*given))
    asking = checks("toy:eye", "e", asked.classes, captions)
    needed = wanted(captions, draws, asking)
    for column in ("target_class", "verification_id"):
        images = images.append_column(column, needed[column])
    verifications = verify(images, captioner, asking)
    assert [row["error"] for row in verifications.to_pylist()] == images["error"].to_pylist()
    predictions = predict(images, Classifier(), classification("m", Classifier(), asked.classes, None))
    distinct = Distinct(images)
    known = VerifiedImages(verifications, CALIBRATION.empty_table(), distinct)
    small, large = scored(captions, draws, predictions, ["m"], Thresholds(0.05, 0.05), known, distinct)[0].to_pylist()
    for row in (small, large):
        assert (row["n"], row["errors"], row["repeats"], row["doubt"]) == (38, 2, 0, None)
    assert (small["verdict"], large["verdict"]) == ("against", "for")


def test_images_that_confirm_are_made_with_other_seeds(tmp_path):
    images = {"source": "generate", "generator": "toy:painter"}
    asked = asked_of(images, images_per_caption=7, captions_per_cell=2, confirm=True)
    proposals, _ = propose(asked.task, ["bus"], None, asked.attributes, 0)
    captions, _ = caption(asked.task, proposals, None, 1, 0)  # one of two captions repeated the other and is left out
    with open_c2b_run(tmp_path / "run", "0123456789abcdef0123", {}) as run:
        run.write("captions", captions)
        plan = from_generator(asked, run, Models(), Steps())
    first = plan.select(all_of(captions, 14), NOTHING)
    fresh = plan.select(all_of(captions, 14), NOTHING, excluded=first.drawn["image_id"].to_pylist())
    assert first.drawn.num_rows == fresh.drawn.num_rows == 28
    assert set(plan.wanted["image_id"].to_pylist()) == {
        *first.drawn["image_id"].to_pylist(),
        *fresh.drawn["image_id"].to_pylist(),
    }
    assert fresh.missing.equals(fresh.drawn)
    # Findings of some attributes are confirmed, and the cells of the others have no target.
    cell, of_cell = next(iter(cells_of(captions).items()))
    drawn = plan.select({cell: 14}, NOTHING, excluded=first.drawn["image_id"].to_pylist()).drawn
    assert drawn.equals(fresh.drawn.filter(pc.is_in(fresh.drawn["caption_id"], pa.array(of_cell))))
    assert drawn.num_rows == 14


def see(pixels, asked):
    if "show?" in asked.text and "small" in asked.choices:
        return "small" if pixels.mean() < 64 else "large"
    return "bus"


def test_what_a_labelled_table_leaves_out_is_said(tmp_path):
    rows = [f"{i}.png,{('bus', 'boat')[i % 2]},{('fog', 'rain')[i // 20]},{i / 7}" for i in range(40)]
    rows += ["x.png,boat,snow,1"]
    (tmp_path / "t.csv").write_text("image,target_class,weather,score\n" + "\n".join(rows))
    told = []
    for attributes in (None, {"weather": ["fog", "rain", "snow"]}):
        images = {"source": "labelled", "table": str(tmp_path / "t.csv")}
        asked = asked_of(images, classes=["bus", "boat"], attributes=attributes)
        with open_c2b_run(tmp_path / str(len(told)), "0123456789abcdef0123", {}) as run:
            from_labels(asked, run, HereBackend(), [], Steps(told.append))
        assert run.manifest["warnings"] == [event.step for event in told if event.kind == "warning"][-1:]
    said = [event.step for event in told if event.kind == "warning"]
    cut = "; `cut: {score: quantiles}` under `images` compares it"
    assert said == [f"column score is no attribute: numbers{cut}", "weather of bus: no image shows 'snow'"]
