import pyarrow as pa
import pyarrow.compute as pc
import pytest
from budgeted_runs import BOTH, ONE, asked_of, by_value, captions_of, draw, run_of

from c2b_ray.audits.c2b.budget import first_grant, grant_so_far, next_grant, targets
from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError
from c2b_ray.tables import DRAWS, SCORES


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
        draw(run, grant, asked, every={"small": 10})
        more = next_grant(run, grant, asked)
        # Night and rain are always wrong, which 20 images settle; that small ones are wrong at times takes more.
        expected = {"day": 20, "night": 20, "small": 40, "large": 40, "snow": 20, "rain": 20, "fog": 20}
        assert by_value(run, more) == expected
        assert by_value(run, grant)["small"] == 20  # what was granted before is left alone
        (looked,) = run.manifest["budget"]["looks"]
        assert looked == {"images": 140, "open": 1, "groups": 3}


def test_no_caption_gets_more_than_its_most(tmp_path):
    asked = asked_of(first=60, images_per_caption=100)
    with run_of(tmp_path, asked) as run:
        grant, granted = first_grant(run.captions, asked), []
        while grant is not None:
            granted.append(by_value(run, grant)["small"])
            draw(run, grant, asked, every={"small": 7})
            grant = next_grant(run, grant, asked)
        assert granted[0] == 60
        assert granted[-1] == 100


def test_the_group_nearest_to_a_decision_comes_first(tmp_path):
    asked = asked_of(200, first=20, attributes={"pattern": ["dotted", "plain"], "size": ["large", "small"]})
    with run_of(tmp_path, asked) as run:
        grant = dict.fromkeys(first_grant(run.captions, asked), 20)
        draw(run, grant, asked, every={"small": 3, "dotted": 5})  # φ is -.3 and -.2
        more = by_value(run, next_grant(run, grant, asked))
        # A look spends a fourth of the 120 images left: the group that needs more waits for a later look.
        assert more["small"] == more["large"] > 20
        assert more["dotted"] == more["plain"] == 20


def test_what_is_left_is_not_spent_where_it_is_unlikely_to_decide(tmp_path):
    asked = asked_of(165, first=20)
    with run_of(tmp_path, asked) as run:
        grant = dict.fromkeys(first_grant(run.captions, asked), 20)
        draw(run, grant, asked, every={"small": 5})  # 140; 12 more of each size would not tell 16 of 20 from 20 of 20
        assert next_grant(run, grant, asked) is None
        (small,) = (row for row in run.scores.to_pylist() if row["bias_class"] == "small")
        assert small["verdict"] == "undetermined"
        assert small["images_to_settle"] is None
        assert small["undetermined_because"].startswith("a decision is unlikely: with 12 more images of each value")


def test_none_can_be_given_up_as_a_goal(tmp_path):
    asked, findings = (
        read_audit(
            asked_of().model_dump(exclude={"budget", "images"}, exclude_defaults=True)
            | {
                "images": {"source": "labelled", "table": "t.csv"},
                "attributes": None,
                "captions_per_cell": 5,
                "images_per_caption": 400,
                "budget": {"images": 10_000, "first": 20} | more,
            }
        )
        for more in ({}, {"none": False})
    )
    for config, goes_on in ((asked, True), (findings, False)):
        with run_of(tmp_path / str(goes_on), asked_of()) as run:
            grant = dict.fromkeys(first_grant(run.captions, config), 40)
            draw(run, grant, config)
            more = next_grant(run, grant, config)
            assert (more is not None and by_value(run, more)["small"] > 40) == goes_on


def test_the_first_look_takes_a_fifth_of_the_budget_or_ten_images_of_each_cell():
    def first(images):
        (granted,) = set(first_grant(captions_of(asked_of())[1], asked_of(images, first=100)).values())
        return granted

    assert [first(images) for images in (10_000, 700, 140, 35)] == [100, 20, 10, 5]


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


def test_a_config_that_does_not_give_up_none_keeps_its_run_id():
    assert asked_of().model_dump()["budget"] == {"images": 10_000, "first": 20}
