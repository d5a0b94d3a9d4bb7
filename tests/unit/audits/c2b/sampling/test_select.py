"""What a cell draws from pools, on images whose content is known: a name that ends in n is of an image by night."""

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.sampling.selection import ACCEPTED, NEAREST, CellPools, check_captions
from c2b_ray.errors import ConfigError
from c2b_ray.tables import CAPTIONS, DRAWS


def captions_of(*texts, cell=("p", "snow")):
    rows = [
        {
            "caption_id": f"{cell[1]}-{number}",
            "proposal_id": cell[0],
            "kind": "attribute",
            "target_class": "bus",
            "attribute": "weather",
            "bias_class": cell[1],
            "number": number,
            "text": text,
        }
        for number, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, CAPTIONS)


def nearest_of(pools):
    rows = [
        {"caption_id": caption, "image_id": image, "rank": rank, "similarity": 0.5, "source": "retrieve"}
        for caption, images in pools.items()
        for rank, image in enumerate(images)
    ]
    return pa.Table.from_pylist(rows, DRAWS)


class Seen:
    """Knows the images in `looked`; accepts those in `good`. Images of one letter and digit are one picture."""

    def __init__(self, good, looked=None, picture=None):
        self.good, self.looked, self.picture = set(good), looked, picture or {}

    def looked_at(self, image, caption):
        return self.looked is None or image in self.looked

    def accepts(self, image, caption):
        assert self.looked_at(image, caption), "asked about an image that nobody looked at"
        return image in self.good

    def fingerprint(self, image):
        number = self.picture.get(image)
        return None if number is None else np.random.default_rng(number).bytes(200)


CELL = ("p", "snow")


def look_until_done(pools, target, good, excluded=()):
    """Looks at what is missing until nothing is; the selection, and how many rounds it took."""
    looked, rounds = set(), 0
    while True:
        found = pools.select({CELL: target}, Seen(good, looked), excluded)
        if not found.missing.num_rows:
            return found, rounds
        new = set(found.missing["image_id"].to_pylist())
        assert new - looked
        looked |= new
        rounds += 1


def test_what_is_drawn_of_a_pool_whose_nearest_are_nights_is_like_what_is_accepted_in_it():
    # 1000 images, of which 400 show a bus in the snow: 90 % of the nearest 100 of these are nights, 34 % of all.
    rng = np.random.default_rng(0)
    snow = [f"s{i}{'n' if i % 10 else 'd'}" for i in range(100)] + [
        f"s{i}{'n' if i < 146 else 'd'}" for i in range(100, 400)
    ]
    others = [f"x{i}" for i in range(600)]
    pool = snow[:100] + list(rng.permutation(snow[100:] + others))
    nearest, texts = nearest_of({"snow-0": pool}), captions_of("a bus in the snow")
    true = np.mean([image.endswith("n") for image in snow])
    assert round(true, 2) == 0.34

    def nights(drawn):
        return np.mean([image.endswith("n") for image in drawn["image_id"].to_pylist()])

    shares = []
    for seed in range(40):
        found, rounds = look_until_done(CellPools(texts, nearest, ACCEPTED, seed), 100, snow)
        assert found.drawn.num_rows == 100
        assert set(found.drawn["image_id"].to_pylist()) <= set(snow)
        assert rounds <= 2
        shares.append(nights(found.drawn))
    assert abs(np.mean(shares) - true) < 0.02  # its standard error is 0.006
    paper = CellPools(texts, nearest, NEAREST, 0, shuffled=False).select({CELL: 100}, Seen(snow))
    assert nights(paper.drawn) == 0.9


def test_an_exhausted_pool_gives_what_it_holds_and_was_looked_at_whole():
    pool = [f"i{n}" for n in range(200)]
    good = pool[::5]
    found, rounds = look_until_done(CellPools(captions_of("a"), nearest_of({"snow-0": pool}), ACCEPTED, 0), 60, good)
    assert sorted(found.drawn["image_id"].to_pylist()) == sorted(good)
    assert sorted(found.looked["image_id"].to_pylist()) == sorted(pool)
    assert rounds == 2


def test_what_was_looked_at_is_kept_also_where_it_was_not_drawn():
    pool = [f"i{n}" for n in range(400)]
    found, _ = look_until_done(CellPools(captions_of("a"), nearest_of({"snow-0": pool}), ACCEPTED, 0), 50, pool[::2])
    assert found.drawn.num_rows == 50
    assert found.looked.num_rows in (100, 200)
    assert found.looked["rank"].to_pylist() == list(range(found.looked.num_rows))
    assert found.drawn["rank"].to_pylist() == list(range(50))


@pytest.mark.parametrize("by", [ACCEPTED, NEAREST])
def test_a_cell_is_filled_to_distinct_images_by_captions_in_turn(by):
    # The second caption's nearest are the first's; the third has two images alone.
    pools = {"snow-0": [f"i{n}" for n in range(30)], "snow-1": [f"i{n}" for n in range(30)], "snow-2": ["j0", "j1"]}
    every = [*pools["snow-0"], *pools["snow-2"]]
    found = CellPools(captions_of("a", "b", "c"), nearest_of(pools), by, 0, shuffled=by == ACCEPTED).select(
        {CELL: 21}, Seen(every)
    )
    images, captions = (found.drawn[name].to_pylist() for name in ("image_id", "caption_id"))
    assert len(images) == len(set(images)) == 21
    assert [captions.count(f"snow-{n}") for n in range(3)] == [10, 9, 2]
    if by == NEAREST:
        assert set(images) == {*(f"i{n}" for n in range(19)), "j0", "j1"}


def test_never_more_than_the_pool_holds_of_distinct_pictures():
    pools = {"snow-0": ["a", "b", "c", "d"]}
    seen = Seen("abcd", picture={"a": 1, "b": 2, "c": 1, "d": 3})  # c is a again
    found = CellPools(captions_of("a"), nearest_of(pools), NEAREST, 0, shuffled=False)
    assert found.select({CELL: 3}, seen).drawn["image_id"].to_pylist() == ["a", "b", "d"]
    assert found.select({CELL: 9}, seen).drawn.num_rows == 3


def test_the_nearest_are_fetched_before_it_is_known_which_repeat_each_other():
    pools = CellPools(captions_of("a"), nearest_of({"snow-0": ["a", "b", "c"]}), NEAREST, 0, shuffled=False)
    first = pools.select({CELL: 2}, Seen("abc", looked=set()))
    assert first.missing["image_id"].to_pylist() == ["a", "b"]
    second = pools.select({CELL: 2}, Seen("abc", looked={"a", "b"}, picture={"a": 1, "b": 1}))
    assert second.missing["image_id"].to_pylist() == ["c"]  # b turned out to be a: the next one fills up


def test_a_cell_that_asks_for_more_keeps_what_it_drew_and_a_rerun_draws_the_same():
    pools = {f"snow-{c}": [f"i{(n * (c + 3)) % 211}" for n in range(150)] for c in range(3)}
    good = [f"i{n}" for n in range(0, 211, 3)]
    made = CellPools(captions_of("a", "b", "c"), nearest_of(pools), ACCEPTED, 7)
    few, more = (look_until_done(made, target, good)[0].drawn for target in (12, 40))
    assert more.to_pylist()[:12] == few.to_pylist()
    again = CellPools(captions_of("a", "b", "c"), nearest_of(pools), ACCEPTED, 7)
    everything = again.select({CELL: 40}, Seen(good))  # all verifications are there already
    stepwise = look_until_done(made, 40, good)[0]
    assert everything.drawn.equals(stepwise.drawn)
    assert everything.looked.equals(stepwise.looked)


def test_all_captions_meet_an_image_at_the_same_place():
    pool = [f"i{n}" for n in range(300)]
    texts = pa.concat_tables([captions_of("a"), captions_of("b", cell=("q", "night"))])
    made = CellPools(texts, nearest_of({"snow-0": pool, "night-0": pool[::-1]}), ACCEPTED, 0)
    found = made.select({CELL: 20, ("q", "night"): 20}, Seen(pool, looked=set()))
    assert found.missing.num_rows == 80
    assert len(set(found.missing["image_id"].to_pylist())) == 40


def test_a_fixed_pool_of_nearest_is_looked_at_in_random_order():
    pool = [f"i{n}" for n in range(300)]
    made = CellPools(captions_of("a"), nearest_of({"snow-0": pool}), NEAREST, 0, shuffled=False).fixed(100)
    few, whole = (made.select({CELL: n}, Seen(pool)).drawn["image_id"].to_pylist() for n in (30, 200))
    assert sorted(whole) == sorted(pool[:100])
    assert whole[:30] == few
    assert set(few) != set(pool[:30])


def test_some_images_can_be_left_out():
    pool = [f"i{n}" for n in range(100)]
    made = CellPools(captions_of("a"), nearest_of({"snow-0": pool}), ACCEPTED, 0)
    first = look_until_done(made, 40, pool)[0].drawn["image_id"].to_pylist()
    fresh = look_until_done(made, 40, pool, excluded=first)[0]
    assert fresh.drawn.num_rows == 40
    assert not set(fresh.looked["image_id"].to_pylist()) & set(first)


def test_a_caption_that_repeats_another_of_its_cell_draws_nothing_and_two_values_with_one_caption_are_refused():
    pools = {"snow-0": ["a", "b"], "snow-1": ["a", "b"]}
    found = CellPools(captions_of("A bus", "a  bus"), nearest_of(pools), NEAREST, 0).select({CELL: 4}, Seen("ab"))
    assert set(found.drawn["caption_id"].to_pylist()) == {"snow-0"}
    both = pa.concat_tables([captions_of("a bus"), captions_of("a bus", cell=("p", "rain"))])
    with pytest.raises(ConfigError, match=r"attributes\.weather: the values 'snow' and 'rain' of class 'bus'"):
        check_captions(both)
    check_captions(pa.concat_tables([captions_of("a bus"), captions_of("a bus", cell=("q", "rain"))]))
