"""Every item is done once, whoever dies on the way, and nobody waits long for the slowest."""

from __future__ import annotations

from collections import Counter

import pytest

from counterfoil.core.errors import BadData, RunFailed
from counterfoil.protocols.ray.crew import Crew, Described, Ready, Report
from counterfoil.protocols.ray.leases import ALONE, Leases

from .simulated import SimulatedPool, items


def work(pool: SimulatedPool, count: int, *, workers: int = 2, room: int = 6, through_store: bool = True):
    """What was handed in, in its order, and what was given up."""
    crew = Crew(pool, workers)
    crew.start()
    leases = Leases(items(count), key=str, workers=workers, most=room // 2, slots=pool.slots, clock=pool.clock)
    kept, lost, finished = [], [], []
    for done, staged, given_up in crew.work(leases, room=room, through_store=through_store):
        finished += [each.key for each in done]
        kept += staged.image_ids if staged is not None else []
        lost += given_up
    return kept if through_store else finished, lost


@pytest.mark.parametrize("through_store", [True, False])
@pytest.mark.parametrize(("count", "workers", "room"), [(0, 2, 6), (1, 3, 6), (50, 1, 2), (57, 4, 16)])
def test_every_item_is_done_once(count, workers, room, through_store):
    kept, lost = work(SimulatedPool(), count, workers=workers, room=room, through_store=through_store)
    assert (sorted(kept), lost) == (list(items(count)), [])


@pytest.mark.parametrize("seed", range(12))
def test_killing_a_worker_every_few_items_loses_and_repeats_nothing(seed):
    pool = SimulatedPool(kill_every=4.0, seed=seed)
    kept, lost = work(pool, 80, workers=3)
    assert (sorted(kept), lost) == (list(items(80)), [])
    assert pool.deaths >= 5


@pytest.mark.parametrize("seed", range(4))
def test_items_that_end_their_worker_are_found_among_the_innocent_and_given_up(seed):
    bad = frozenset({"i0003", "i0021", "i0022"})
    kept, lost = work(SimulatedPool(poison=bad, seed=seed), 40)
    assert sorted(lost) == sorted(bad)
    assert sorted(kept) == sorted(set(items(40)) - bad)


def test_the_end_does_not_wait_for_a_worker_that_is_a_hundred_times_slower():
    pool = SimulatedPool(seconds=lambda number: 100.0 if number == 0 else 1.0)
    kept, _ = work(pool, 60, workers=3, room=4)
    assert Counter(kept) == Counter(items(60))
    assert pool.now < 30 + 10  # two quick workers take 30 s; the slow one alone would hold four items for 400 s


@pytest.mark.parametrize(("count", "held_up"), [(8, 1.6), (32, 1), (56, 1), (96, 1), (200, 1)])
def test_a_slow_worker_holds_up_the_end_by_about_an_item_at_most(count, held_up):
    def end(*seconds: float) -> float:
        pool = SimulatedPool(seconds=lambda number: seconds[number], slots=8)
        kept, _ = work(pool, count, workers=len(seconds), room=24)
        assert Counter(kept) == Counter(items(count))
        return pool.now

    assert end(240.0, 12.0) <= end(12.0) + held_up * 12
    assert end(12.0, 240.0, 12.0) <= end(12.0, 12.0) + held_up * 12


def test_equal_workers_with_slots_repeat_nothing():
    pool = SimulatedPool(slots=8)
    work(pool, 300, workers=4, room=24)
    assert len(pool.worked) == 300


def test_equal_workers_end_within_an_item_of_each_other_and_repeat_little():
    pool = SimulatedPool()
    work(pool, 61, workers=4, room=8)
    assert pool.now < 61 / 4 + 2.5
    assert len(pool.worked) <= 61 + 4


def test_an_item_whose_workers_died_of_something_else_is_tried_again_at_the_end():
    seconds = 0.0
    leases = Leases(items(3), key=str, workers=2, most=1, clock=lambda: seconds)
    (first,), (unlucky,) = leases.give("a", 1), leases.give("b", 1)
    seconds = 1.0  # what an item takes; from here on no time passes, so that nobody is late
    leases.finished("a", [first]), leases.handed_in("a", [first])
    assert leases.died("b") == []
    for number in range(ALONE):
        assert leases.give(f"b{number}", 1) == [unlucky] and leases.suspected(f"b{number}")
        assert leases.died(f"b{number}") == []
    (other,) = leases.give("c", 1)
    assert other != unlucky
    assert leases.give("d", 1) == []  # while others work, it waits
    leases.finished("c", [other]), leases.handed_in("c", [other])
    assert not leases.over
    assert leases.give("d", 1) == [unlucky]
    leases.finished("d", [unlucky]), leases.handed_in("d", [unlucky])
    assert leases.over


def test_leases_shrink_to_single_items():
    leases = Leases(items(40), key=str, workers=2, most=8)
    sizes = []
    while given := leases.give(f"w{len(sizes) % 2}", 8):
        sizes.append(len(given))
    assert sizes[0] == 8 and sizes[-4:] == [1, 1, 1, 1]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) == 40


def test_workers_that_never_finish_anything_end_the_run():
    with pytest.raises(RunFailed, match="none was finished"):
        work(SimulatedPool(poison=frozenset(items(30))), 30)
    with pytest.raises(RunFailed, match="in a row died and finished nothing"):
        work(SimulatedPool(kill_every=0.2), 30)


def test_an_error_in_a_worker_is_raised_as_it_is():
    pool = SimulatedPool()
    crew = Crew(pool, 1)
    crew.start()
    pool.turn = lambda worker, order: pool._post(pool.now, worker, Report(error=BadData("strict")))  # type: ignore
    with pytest.raises(BadData, match="strict"):
        list(crew.work(Leases(items(3), key=str, workers=1, most=1), room=1, through_store=True))


@pytest.mark.parametrize("done", range(0, 30, 3))
def test_an_interrupted_run_keeps_what_every_worker_had_finished(done):
    pool = SimulatedPool(part=1000)
    crew = Crew(pool, 3)
    crew.start()
    leases = Leases(items(30), key=str, workers=3, most=3, clock=pool.clock)
    kept: list[str] = []
    for _, staged, _ in crew.work(leases, room=6, through_store=True):
        kept += staged.image_ids if staged is not None else []
        if len(pool.worked) >= done:  # while the reports of others are there too
            break
    worked = set(pool.worked)
    kept += [key for staged in crew.salvage(leases) for key in staged.image_ids]
    assert len(worked) >= done and worked <= set(kept) and len(kept) == len(set(kept))


def test_workers_with_many_slots_have_their_next_items_before_they_need_them():
    pool = SimulatedPool(seconds=lambda number: 6.0 + number / 8, slots=128, part=64)
    work(pool, 5000, workers=8, room=320)
    assert pool.idle < 0.03 * 5000 * 6


def test_a_worker_with_more_slots_than_the_first_gets_more_items():
    pool = SimulatedPool(room=lambda number: (4, 40)[number])
    kept, _ = work(pool, 120, room=4)
    assert Counter(kept) == Counter(items(120))
    assert pool.held["w0"] <= 4 < 30 <= pool.held["w1"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"versions": {"torch": "2.12"}}, "torch: one has 2.11, that on node gpu-7 has 2.12"),
        ({"code": "b"}, "code: one has a, that on node gpu-7 has b"),
        ({"functions": {"mine.py:load": "y"}}, "mine.py:load: one has x, that on node gpu-7 has y"),
        ({"parts": {"model": {"weights": "v"}}}, r"parts.model.weights: one has w, that on node gpu-7 has v"),
    ],
)
def test_a_node_with_other_versions_or_weights_is_refused(other, message):
    pool = SimulatedPool()
    account = {
        "versions": {"torch": "2.11"},
        "code": "a",
        "functions": {"mine.py:load": "x"},
        "parts": {"model": {"weights": "w", "asked": 0}},
    }
    pool.wait = lambda: [  # type: ignore
        ("w0", Ready(Described(account), "gpu-1")),
        (
            "w1",
            Ready(Described({**account, "hardware": {"cores": 3}, "parts": {"model": {"weights": "w", "asked": 9}}}), "gpu-2"),
        ),
        ("w2", Ready(Described({**account, **other}), "gpu-7")),
    ]
    with pytest.raises(RunFailed, match=message):
        Crew(pool, 3).start()


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        ([{"gpu": "NVIDIA H200"}] * 3, []),
        (
            [{"gpu": "NVIDIA H200"}, *[{"gpu": "NVIDIA A100"}] * 2],
            [
                "workers differ in hardware, one has NVIDIA H200, that on node gpu-1 has NVIDIA A100: so will their rounding",
            ],
        ),
        (
            [{"gpu": "NVIDIA H200", "batch_size": 128}, {"gpu": "NVIDIA H200", "batch_size": 64}],
            [
                "workers differ in hardware, one has NVIDIA H200 with 128 images per call, that on node gpu-1 has NVIDIA H200 "
                "with 64 images per call: so will their rounding",
            ],
        ),
    ],
)
def test_workers_on_different_cards_are_remarked_on_once(cards, said):
    pool, told = SimulatedPool(), []
    pool.wait = lambda: [  # type: ignore
        (f"w{number}", Ready(Described({"hardware": {**card, "cores": number}}), f"gpu-{number}"))
        for number, card in enumerate(cards)
    ]
    Crew(pool, len(cards), told.append).start()
    assert told == said
