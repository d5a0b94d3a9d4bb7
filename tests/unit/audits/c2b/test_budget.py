import pickle
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from c2b_ray.audits.c2b import budget
from c2b_ray.audits.c2b.budget import call_with_run, first_grant, grant_so_far, next_grant, targets, write_scores
from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError
from c2b_ray.pipelines.here import Here
from c2b_ray.report.c2b.report import write_report
from c2b_ray.schemas import DRAWS, PREDICTIONS, SCORES, VERIFICATIONS
from c2b_ray.steps.caption import caption
from c2b_ray.steps.caption_pairs import caption_pairs
from c2b_ray.steps.intersect import pairs
from c2b_ray.steps.propose import propose
from c2b_ray.store import files
from c2b_ray.store.c2b_run import open_c2b_run

ATTRIBUTES = {"lighting": ["day", "night"], "size": ["small", "large"], "weather": ["snow", "rain", "fog"]}
BIASED = ("night", "rain")  # answered wrongly, always; nothing else is


ONE = {"source": "retrieve", "index": "i"}
BOTH = {"source": ["retrieve", "generate"], "index": "i", "generator": "g"}


def asked_of(budget=10_000, first=20, **changes):
    return read_audit(
        {
            "task": "Tell buses from boats.",
            "classes": ["bus"],
            "classifier": "m",
            "images": {"source": "retrieve", "index": "i"},
            "attributes": ATTRIBUTES,
            "budget": {"images": budget, "first": first} if budget else None,
            "captions_per_cell": 1,
            "images_per_caption": 100,
            **changes,
        }
    )


def captions_of(asked):
    proposals, _ = propose(asked.task, asked.classes, None, asked.attributes, asked.seed)
    captions, _ = caption(asked.task, proposals, None, asked.captions_per_cell, asked.seed)
    of_pairs, _ = caption_pairs(pairs(proposals, asked.intersections), captions, None, asked.seed)
    return proposals, pa.concat_tables([captions, of_pairs])


@contextmanager
def run_of(path, asked):
    with open_c2b_run(path / "run", "0123456789abcdef0123", asked.model_dump(mode="json")) as run:
        proposals, captions = captions_of(asked)
        run.write("proposals", proposals)
        run.write("captions", captions)
        yield run


def draw(run, grant, asked, most=10**6):
    """As many images of each caption as were granted, or as the source holds, and what the classifier says."""
    draws, predictions = [], []
    for row in run.captions.to_pylist():
        right = row["bias_class"] not in BIASED
        for source in asked.images.sources:
            for rank in range(min(grant[row["caption_id"]], most)):
                image = f"{row['caption_id']}-{source}-{rank}"
                draws.append({"caption_id": row["caption_id"], "image_id": image, "rank": rank, "source": source})
                answer = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
                predictions.append({**answer, "predicted_class": "bus" if right else "boat"})
    run.write("draws", pa.Table.from_pylist(draws, DRAWS))
    files.make_directory(run.location("predictions"))
    files.write_table(run.location("predictions/part-0.parquet"), pa.Table.from_pylist(predictions, PREDICTIONS))
    write_scores(run, asked)


def by_value(run, grant):
    return {row["bias_class"]: grant[row["caption_id"]] for row in run.captions.to_pylist()}


def test_without_a_budget_every_caption_gets_all_at_once(tmp_path):
    asked = asked_of(budget=None, images_per_caption=12)
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        assert set(grant.values()) == {12}
        draw(run, grant, asked)
        assert next_grant(run, grant, asked) is None
        assert "budget" not in run.manifest
    table = asked_of(budget=None, images={"source": "labelled", "table": "t"}, images_per_caption=None)
    assert set(first_grant(captions_of(table)[1], table).values()) == {2**31 - 1}


def test_open_groups_alone_get_twice_as_many(tmp_path):
    asked = asked_of()
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        assert set(grant.values()) == {20}
        draw(run, grant, asked)
        more = next_grant(run, grant, asked)
        # Night and rain are always wrong, which 20 images settle; that nothing is wrong with size takes more.
        expected = {"day": 20, "night": 20, "small": 40, "large": 40, "snow": 20, "rain": 20, "fog": 20}
        assert by_value(run, more) == expected
        assert by_value(run, grant)["small"] == 20  # what was granted before is left alone
        (looked,) = run.manifest["budget"]["looks"]
        assert looked == {"images": 140, "open": 1, "groups": 3}


def test_no_caption_gets_more_than_its_most(tmp_path):
    asked = asked_of(images_per_caption=30)
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        draw(run, grant, asked)
        more = next_grant(run, grant, asked)
        assert by_value(run, more)["small"] == 30
        draw(run, more, asked)
        assert next_grant(run, more, asked) is None


def test_the_budget_goes_to_the_groups_with_the_fewest_images_first(tmp_path):
    asked = asked_of(200, first=10)
    with run_of(tmp_path, asked) as run:
        grant = dict(first_grant(run.captions, asked))
        for row in run.captions.to_pylist():
            if row["attribute"] == "size":
                grant[row["caption_id"]] = 40
        draw(run, grant, asked)  # 20 + 80 + 30 = 130; 70 are left
        more = by_value(run, next_grant(run, grant, asked))
        # weather costs 30, size would cost 80 and has what is left
        assert (more["snow"], more["small"]) == (20, 60)


def test_the_last_group_gets_what_the_budget_has_left(tmp_path):
    asked = asked_of(165, first=20, images_per_caption=40)
    with run_of(tmp_path, asked) as run:
        grant = dict(first_grant(run.captions, asked))
        for row in run.captions.to_pylist():
            if row["attribute"] == "size":
                grant[row["caption_id"]] = 30
        draw(run, grant, asked)  # 40 + 60 + 60 = 160; size, two captions, may have 2 more of each
        more = next_grant(run, grant, asked)
        assert (by_value(run, more)["small"], by_value(run, more)["snow"]) == (32, 20)
        draw(run, more, asked)
        assert next_grant(run, more, asked) is None  # one image cannot be shared by two captions


def test_a_run_called_again_draws_nothing_less(tmp_path):
    asked = asked_of(intersections=[["lighting", "size"]], images_per_caption=500)
    with run_of(tmp_path, asked) as run:
        grant = first = first_grant(run.captions, asked)
        assert grant_so_far(run, first) == first
        draw(run, grant, asked)
        while (more := next_grant(run, grant, asked)) is not None:
            grant = more
            draw(run, grant, asked)
        assert grant != first
        assert grant_so_far(run, first) == grant


def test_a_value_without_more_images_ends_its_group(tmp_path):
    asked = asked_of()
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        draw(run, grant, asked)
        small = {row["caption_id"] for row in run.captions.to_pylist() if row["bias_class"] == "small"}
        few = [row for row in run.draws.to_pylist() if row["caption_id"] not in small or row["rank"] < 15]
        run.write("draws", pa.Table.from_pylist(few, DRAWS))
        assert next_grant(run, grant, asked) is None  # more large ones would tell nothing without small ones


@pytest.mark.parametrize(("images", "place"), [(14, ONE), (97, BOTH), (141, ONE), (500, BOTH), (1000, ONE)])
def test_the_budget_is_never_overdrawn_and_always_ends(tmp_path, images, place):
    asked = asked_of(images, images=place)
    spent = []
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        while grant is not None:
            draw(run, grant, asked)
            spent.append(run.draws.num_rows)
            grant = next_grant(run, grant, asked)
        looks = run.manifest["budget"]["looks"]
    assert spent == sorted(set(spent))
    assert spent[-1] <= images
    assert [entry["images"] for entry in looks] == spent
    assert run.manifest["budget"]["images"] == images


def test_a_cell_asks_for_as_many_images_as_captions_were_to_be_written_for_it(tmp_path):
    asked = asked_of(budget=None, images_per_caption=12, captions_per_cell=3)
    captions = captions_of(asked)[1]
    grant = first_grant(captions, asked)
    assert set(targets(captions, grant, asked).values()) == {36}
    few = captions.filter(pc.less(captions["number"], 1))  # two of three repeated the first and were left out
    assert set(targets(few, grant, asked).values()) == {36}


def test_a_budget_below_a_first_look_says_what_it_takes():
    asked = asked_of(6, intersections=[["lighting", "size"]], images_per_caption=5)
    captions = captions_of(asked)[1]
    with pytest.raises(
        ConfigError, match=r"budget\.images: 6 are too few .* 7 captions .* 4 of intersections.* 27 in all"
    ):
        first_grant(captions, asked)


def test_intersections_have_theirs_at_once_and_count(tmp_path):
    asked = asked_of(90, first=20, intersections=[["lighting", "size"]], images_per_caption=10)
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        assert by_value(run, grant)["day, small"] == 10
        assert by_value(run, grant)["day"] == 7  # (90 - 4 * 10) / 7 captions
        draw(run, grant, asked)
        assert run.draws.num_rows <= 90
        next_grant(run, grant, asked)
        assert run.manifest["budget"]["looks"][0]["groups"] == 3  # an intersection is no group that could be open


def test_an_index_that_has_no_more_ends_the_looks(tmp_path):
    asked = asked_of(first=4)
    with run_of(tmp_path, asked) as run:
        grant, looked = first_grant(run.captions, asked), 0
        while grant is not None:
            draw(run, grant, asked, most=6)
            looked += 1
            grant = next_grant(run, grant, asked)
        assert [entry["images"] for entry in run.manifest["budget"]["looks"]] == [28, 42]
    assert looked == 2


def test_a_resumed_run_notes_each_look_once(tmp_path):
    asked = asked_of(400)

    def all_looks(run):
        grant = first_grant(run.captions, asked)
        while grant is not None:
            draw(run, grant, asked)
            grant = next_grant(run, grant, asked)
        return run.manifest["budget"]["looks"]

    with run_of(tmp_path, asked) as run:
        once = all_looks(run)
        assert len(once) > 1
        assert all_looks(run) == once


def test_scores_of_a_budget_hold_the_sequential_verdicts_and_their_groups(tmp_path):
    asked = asked_of()
    with run_of(tmp_path, asked) as run:
        draw(run, dict.fromkeys(first_grant(run.captions, asked), 60), asked)
        rows = {row["bias_class"]: row for row in run.scores.to_pylist()}
        assert (rows["night"]["verdict"], rows["day"]["verdict"]) == ("against", "for")
        assert {rows["night"]["group"], rows["day"]["group"]} == {1}
        assert rows["rain"]["group"] == 2
        assert rows["small"]["group"] is None
        assert not run.has("agreement")


def test_two_sources_are_held_against_each_other(tmp_path):
    asked = asked_of(images=BOTH)
    with run_of(tmp_path, asked) as run:
        draw(run, dict.fromkeys(first_grant(run.captions, asked), 60), asked)
        assert run.scores["n"].to_pylist() == [120] * 7
        rows = run.agreement.to_pylist()
        assert [(row["n_retrieve"], row["n_generate"]) for row in rows] == [(60, 60)] * 7
        assert {row["difference"] for row in rows} == {0.0}


def test_a_group_whose_open_cells_are_all_in_doubt_gets_no_more_images(tmp_path):
    asked = asked_of()
    with run_of(tmp_path, asked) as run:
        grant = first_grant(run.captions, asked)
        draw(run, grant, asked)
        assert next_grant(run, grant, asked) != grant  # size is open: more of it could settle it
        rows = run.scores.to_pylist()
        for row in rows:
            row["n"] = 120
            row["doubt"] = "only 20% of the images show a bus" if row["attribute"] == "size" else None
        run.write("scores", pa.Table.from_pylist(rows, SCORES))
        assert next_grant(run, grant, asked) is None


def test_what_confirms_a_finding_does_not_change_it(tmp_path):
    asked = asked_of(budget=None, images_per_caption=20, attributes={"lighting": ["day", "night"]})
    with run_of(tmp_path, asked) as run:
        draw(run, first_grant(run.captions, asked), asked)
        value = dict(zip(*(run.captions[name].to_pylist() for name in ("caption_id", "bias_class")), strict=True))
        seen = [_seen(row["image_id"], value[row["caption_id"]]) for row in run.draws.to_pylist()]
        verify(run, seen)
        write_scores(run, asked)
        found = run.scores.to_pylist()
        # The verifier is less sure of the fresh images than it was of those that were drawn.
        fresh = [{**row, "image_id": f"fresh-{row['image_id']}"} for row in run.draws.to_pylist()]
        verify(run, [*seen, *(_seen(row["image_id"], value[row["caption_id"]], 0.6) for row in fresh)])
        run.write("confirmation", pa.Table.from_pylist(fresh, DRAWS))
        write_scores(run, asked)
        names = ("phi", "phi_low", "phi_high", "p_value", "verdict", "doubt")
        for before, after in zip(found, run.scores.to_pylist(), strict=True):
            assert [after[name] for name in names] == [before[name] for name in names]


def _seen(image, value, certainty=0.98):
    said = {"verification_id": image, "image_id": image, "target_class": "bus", "revision": "1", "class_shown": "bus"}
    values = {"attributes": ["lighting"], "values": [value], "certainties": [certainty]}
    return said | values | {"class_certainty": certainty}


def verify(run, rows):
    files.make_directory(run.location("verifications"))
    files.write_table(run.location("verifications/part-0.parquet"), pa.Table.from_pylist(rows, VERIFICATIONS))


def test_scores_of_many_images_are_counted_where_stages_run(tmp_path, monkeypatch):
    asked = asked_of(budget=None, images_per_caption=12, intersections=[["lighting", "size"]])
    monkeypatch.chdir(tmp_path)
    with run_of(Path(), asked) as run:
        draw(run, first_grant(run.captions, asked), asked)
        here = {name: run.read(name) for name in ("scores", "pooled", "intersections")}
        called = []

        class Elsewhere(Here):
            def call(self, function, config):
                called.append(config)
                monkeypatch.chdir("/")
                try:
                    return pickle.loads(pickle.dumps(function))()
                finally:
                    monkeypatch.chdir(tmp_path)

        write_scores(run, asked, Elsewhere())
        assert not called  # so few are counted here
        monkeypatch.setattr(budget, "COUNTED_HERE", 10)
        for name in here:
            files.remove_file(run.location(f"{name}.parquet"))
        write_scores(run, asked, Elsewhere())
        assert len(called) == 1
        assert Path(call_with_run(write_report, run, asked, Elsewhere())).is_file()  # so is the report written
        assert len(called) == 2
        assert all(repr(run.read(name).to_pylist()) == repr(table.to_pylist()) for name, table in here.items())
