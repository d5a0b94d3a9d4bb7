import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from budgeted_runs import BOTH, asked_of, draw, run_of

from c2b_ray.audits.c2b import budget
from c2b_ray.audits.c2b.budget import (
    call_with_run,
    first_grant,
    fresh_images,
    next_grant,
    score_and_grant,
    write_scores,
)
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.engine.here import InProcess
from c2b_ray.storage import files
from c2b_ray.tables import DRAWS, VERIFICATIONS

MODEL = {"model": "v"}


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


def test_the_second_of_two_stages_is_tested_with_the_first_in_one_family_with_all_other_cells(tmp_path):
    attributes = {"lighting": ["day", "night"], "size": ["small", "large"]}
    screening = {"fresh": 60, "tested": "all"}
    asked = asked_of(budget=None, images_per_caption=40, attributes=attributes, screening=screening, verification=MODEL)
    with run_of(tmp_path, asked) as run:
        about = {row["caption_id"]: (row["attribute"], row["bias_class"]) for row in run.captions.to_pylist()}
        lighting = [caption for caption, (attribute, _) in about.items() if attribute == "lighting"]

        def draw_and_verify(grant):
            draw(run, grant, asked)
            cells = [(row["image_id"], *about[row["caption_id"]]) for row in run.draws.to_pylist()]
            verify(run, [_seen(image, value) | {"attributes": [name]} for image, name, value in cells])
            return run.draws

        first = draw_and_verify(dict.fromkeys(about, 40))
        write_scores(run, asked)
        assert set(fresh_images(run, asked).values()) == {100}
        assert len(fresh_images(run, asked)) == 2  # all answers are right on both sizes

        both = draw_and_verify(dict.fromkeys(about, 40) | dict.fromkeys(lighting, 100)).to_pylist()
        run.write("draws", first)
        run.write("confirmation", pa.Table.from_pylist([row for row in both if row["caption_id"] in lighting], DRAWS))
        write_scores(run, asked)
        rows = {row["bias_class"]: row for row in run.scores.to_pylist()}
        assert {name: row["n"] for name, row in rows.items()} == {"day": 100, "night": 100, "small": 40, "large": 40}
        assert {name: row["wanted"] for name, row in rows.items()} == {
            "day": 100,
            "night": 100,
            "small": 40,
            "large": 40,
        }
        assert {rows[name]["verdict"] for name in ("day", "night")} == {"for", "against"}
        assert rows["night"]["q_value"] == pytest.approx(rows["night"]["p_value"] * 4 / 2)  # 2 findings of 4 tests
        assert [row["n"] for row in run.read("screening").to_pylist()] == [40] * 4


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

        class Elsewhere(InProcess):
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


def test_looks_that_spare_expensive_tests_end_in_the_same_result(tmp_path):
    asked = asked_of(
        2_000, first=20, images_per_caption=400, attributes={"lighting": ["day", "night"], "size": ["small", "large"]}
    )
    every, results = {"small": 9, "large": 30}, []
    for path, in_full in ((tmp_path / "a", True), (tmp_path / "b", False)):
        with run_of(path, asked) as run:
            grant, looked = first_grant(run.captions, asked), 0
            while grant is not None:
                draw(run, grant, asked, every=every)
                if in_full:
                    grant = next_grant(run, grant, asked)
                else:
                    write_scores(run, asked, rough=True)
                    assert not run.read("pooled").num_rows
                    grant = score_and_grant(run, grant, asked)
                looked += 1
            results.append((looked, run.draws.num_rows, repr([run.read(n).to_pylist() for n in ("scores", "pooled")])))
    assert results[0][0] > 2
    assert results[0] == results[1]
