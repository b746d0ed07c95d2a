from __future__ import annotations

import threading
import time

import pytest

from counterfoil.protocols.pipeline import WAITING, in_background


def test_results_come_in_order_in_the_calling_thread():
    taken, threads = [], set()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.002 if number % 3 == 0 else 0)
        return number

    with in_background(work, lambda number: taken.append((number, threading.get_ident()))) as submit:
        for number in range(3 * WAITING):
            submit(number)
            assert number - len(taken) < WAITING + 1
    assert taken == [(number, threading.get_ident()) for number in range(3 * WAITING)]
    assert threading.get_ident() not in threads


def interrupted(taken: list[int]) -> None:
    with in_background(lambda number: number, taken.append) as submit:
        submit(1)
        submit(2)
        raise KeyboardInterrupt


def test_what_was_done_before_an_exception_is_taken():
    taken: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(taken)
    assert taken == [1, 2]


def test_where_nothing_is_waited_for_it_is_done_at_once():
    taken = []
    with in_background(lambda number: threading.get_ident(), taken.append, waits=False) as submit:
        submit(1)
        assert taken == [threading.get_ident()]


def test_an_exception_in_the_background_is_raised_here():
    with pytest.raises(ZeroDivisionError), in_background(lambda number: 1 // number, lambda result: None) as submit:
        submit(0)
