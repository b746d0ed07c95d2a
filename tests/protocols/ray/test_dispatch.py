"""Every item is done once, whichever worker dies on the way, and no worker waits long for the slowest."""

from __future__ import annotations

from collections import Counter

import pytest

from counterfoil.core.errors import RunFailed
from counterfoil.protocols.ray.dispatch import ALONE, Dispatch

from .simulated import SimulatedPool, items


def work(pool: SimulatedPool, count: int, *, largest: int = 3) -> tuple[list[str], list[str]]:
    """Finished items, in their order, and those given up."""
    kept, lost = [], []
    for done, answer in Dispatch(pool, items(count), str, largest, clock=pool.clock):
        (lost if answer is None else kept).extend(done)
    return kept, lost


@pytest.mark.parametrize("early", [float("inf"), 0.0, 1.5])
@pytest.mark.parametrize(("count", "workers", "largest"), [(0, 2, 3), (1, 3, 3), (50, 1, 1), (57, 4, 8), (300, 2, 64)])
def test_every_item_is_done_once(count: int, workers: int, largest: int, early: float) -> None:
    kept, lost = work(SimulatedPool(workers, early=early), count, largest=largest)
    assert (sorted(kept), lost) == (list(items(count)), [])


@pytest.mark.parametrize("seed", range(12))
def test_killing_a_worker_every_few_items_loses_and_repeats_nothing(seed: int) -> None:
    pool = SimulatedPool(3, kill_every=4.0, seed=seed)
    kept, lost = work(pool, 80)
    assert (sorted(kept), lost) == (list(items(80)), [])
    assert pool.deaths >= 5


@pytest.mark.parametrize("seed", range(6))
def test_killing_workers_that_have_many_items_comes_to_an_end(seed: int) -> None:
    pool = SimulatedPool(2, slots=lambda number: 8, kill_every=5.0, early=1.0, seed=seed)
    kept, lost = work(pool, 300, largest=24)
    assert (sorted(kept), lost) == (list(items(300)), [])


@pytest.mark.parametrize("seed", range(4))
def test_items_that_end_their_worker_are_found_among_the_innocent_and_given_up(seed: int) -> None:
    bad = frozenset({"i0003", "i0021", "i0022"})
    kept, lost = work(SimulatedPool(poison=bad, seed=seed), 40)
    assert sorted(lost) == sorted(bad)
    assert sorted(kept) == sorted(set(items(40)) - bad)


def test_deadly_items_are_found_while_workers_are_killed_too() -> None:
    bad = frozenset({"i0005", "i0050"})
    kept, lost = work(SimulatedPool(3, poison=bad, kill_every=15.0), 100)
    assert sorted(lost) == sorted(bad)
    assert sorted(kept) == sorted(set(items(100)) - bad)


def test_the_end_does_not_wait_for_a_worker_that_is_a_hundred_times_slower() -> None:
    pool = SimulatedPool(3, seconds=lambda number: 100.0 if number == 0 else 1.0)
    kept, _ = work(pool, 60)
    assert Counter(kept) == Counter(items(60))
    assert pool.now < 30 + 15  # two quick workers take 30 s; the slow one alone would hold its items for 900 s


@pytest.mark.parametrize("count", [8, 32, 56, 96, 200])
def test_a_slow_worker_holds_up_the_end_by_about_an_item_at_most(count: int) -> None:
    def end(*seconds: float) -> float:
        pool = SimulatedPool(len(seconds), seconds=lambda number: seconds[number], slots=lambda number: 8)
        kept, _ = work(pool, count, largest=24)
        assert Counter(kept) == Counter(items(count))
        return pool.now

    assert end(240.0, 12.0) <= end(12.0) + 2 * 12
    assert end(12.0, 240.0, 12.0) <= end(12.0, 12.0) + 2 * 12


def test_equal_workers_with_slots_repeat_nothing() -> None:
    pool = SimulatedPool(4, slots=lambda number: 8)
    work(pool, 300, largest=24)
    assert len(pool.worked) == 300


def test_equal_workers_end_within_an_item_of_each_other_and_repeat_little() -> None:
    pool = SimulatedPool(4)
    work(pool, 61)
    assert pool.now < 61 / 4 + 2.5
    assert len(pool.worked) <= 61 + 4


@pytest.mark.parametrize("early", [float("inf"), 4.0])
def test_workers_with_many_slots_have_their_next_items_before_they_need_them(early: float) -> None:
    pool = SimulatedPool(8, seconds=lambda number: 6.0 + number / 8, slots=lambda number: 128, early=early)
    work(pool, 8000, largest=128)
    assert pool.idle < 0.05 * 8000 * 6


def test_a_worker_with_more_slots_gets_more_items() -> None:
    pool = SimulatedPool(2, slots=lambda number: (2, 20)[number])
    kept, _ = work(pool, 240, largest=2)
    assert Counter(kept) == Counter(items(240))
    assert pool.held["w0"] <= 12 < 20 <= pool.held["w1"]


def test_answers_come_item_by_item_towards_the_end() -> None:
    sizes: list[int] = []

    class Noted(SimulatedPool):
        def wait(self):
            ended = super().wait()
            sizes.extend([len(ended[1].done)] if ended else [])
            return ended

    work(Noted(2), 80, largest=8)
    assert sizes[0] == 8 and max(sizes[-3:]) <= 2 and sizes[-1] == 1


def test_workers_that_never_finish_anything_end_the_run() -> None:
    with pytest.raises(RunFailed, match=r"none was finished|finished nothing"):
        work(SimulatedPool(poison=frozenset(items(30))), 30)
    with pytest.raises(RunFailed, match=r"none was finished|finished nothing"):
        work(SimulatedPool(kill_every=0.2), 30)


def test_an_innocent_item_whose_workers_die_of_something_else_is_tried_at_the_very_end_again() -> None:
    class Unlucky(SimulatedPool):
        ends = 0

        def _begin(self, name, item):
            super()._begin(name, item)
            if item == "i0001" and self.ends < 1 + ALONE:  # in its call, again, and under suspicion
                self.ends += 1
                self._post(self.now + 0.7, "death", name)

    pool = Unlucky(2)
    kept, lost = work(pool, 12, largest=1)
    assert (sorted(kept), lost) == (list(items(12)), [])
    assert pool.ends == 1 + ALONE and kept[-1] == "i0001"


@pytest.mark.parametrize("done", range(0, 30, 3))
def test_an_interrupted_map_keeps_what_every_worker_had_finished(done: int) -> None:
    pool = SimulatedPool(3)
    dispatch = Dispatch(pool, items(30), str, 5, clock=pool.clock)
    kept: list[str] = []
    for some, _ in dispatch:
        kept += some
        if len(kept) >= done:
            break
    kept += [item for some, _ in dispatch.hand_in(20.0) for item in some]
    assert len(kept) >= done and sorted(kept) == sorted(set(pool.worked))
