"""The book of who uses which app. No cluster is started."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

from c2b_ray.serving.ensure import AppUsers, Lease

ONE, TWO, THREE = Lease("01", "a"), Lease("02", "b"), Lease("02", "c")


class Cluster:
    """Deletes apps, once it may; keeps what is saved."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.saved = "{}"
        self.may_delete = threading.Event()
        self.may_delete.set()
        self.book = self.opened()

    def opened(self) -> AppUsers:
        return AppUsers(self.delete, lambda book: setattr(self, "saved", json.dumps(book)), json.loads(self.saved))

    def delete(self, app: str) -> None:
        assert self.may_delete.wait(20)
        self.deleted.append(app)


def test_an_app_is_started_by_its_first_user_and_ends_with_its_last() -> None:
    cluster = Cluster()
    assert [cluster.book.take("x", lease) for lease in (ONE, TWO, THREE)] == [True, False, False]
    cluster.book.give_back("x", ONE)
    cluster.book.give_back("x", ONE)  # twice is once
    cluster.book.give_back("x", TWO)
    assert cluster.deleted == []
    cluster.book.give_back("x", THREE)
    assert cluster.deleted == ["x"]
    assert cluster.book.take("x", ONE)


def test_users_that_died_are_struck_out_and_others_keep_their_apps() -> None:
    cluster = Cluster()
    for app, lease in (("x", ONE), ("x", TWO), ("y", TWO), ("z", ONE)):
        cluster.book.take(app, lease)
    cluster.book.reap({"01"})
    assert cluster.deleted == ["y"]
    cluster.book.reap({"07"})
    assert sorted(cluster.deleted) == ["x", "y", "z"]


def test_the_book_outlives_its_keeper() -> None:
    cluster = Cluster()
    cluster.book.take("x", ONE)
    cluster.book.take("x", TWO)
    again = cluster.opened()
    assert not again.take("x", THREE)
    again.reap({"02"})
    assert cluster.deleted == []
    again.reap(set())
    assert cluster.deleted == ["x"]


def test_a_user_that_asks_twice_is_still_the_first() -> None:
    """Where the answer was lost with the keeper."""
    cluster = Cluster()
    assert cluster.book.take("x", ONE)
    assert cluster.opened().take("x", ONE)


def test_a_new_user_waits_until_the_app_has_ended_and_starts_it_anew() -> None:
    cluster = Cluster()
    cluster.book.take("x", ONE)
    cluster.may_delete.clear()
    with ThreadPoolExecutor(2) as pool:
        ending = pool.submit(cluster.book.give_back, "x", ONE)
        taking = pool.submit(cluster.book.take, "x", TWO)
        other = cluster.book.take("y", TWO)  # nobody else waits
        assert other
        assert not taking.done()
        cluster.may_delete.set()
        ending.result(20)
        assert taking.result(20)
    assert json.loads(cluster.saved) == {"x": [["02", "b"]], "y": [["02", "b"]]}
