"""Reading ahead: in order, no further than allowed, with errors where they belong, and without threads that stay."""

import os
import threading
import time

import pytest

from common.data.ahead import cores_of_workers, read_ahead
from tests.support.kills import wait_until


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("reader")]


@pytest.mark.parametrize(("num_workers", "num_ahead"), [(0, 0), (1, 1), (3, 6)])
def test_items_come_in_their_order(num_workers, num_ahead):
    def read(item):
        time.sleep(0.002 * (item % 3))
        return item * item

    assert list(read_ahead(read, range(30), num_workers, num_ahead)) == [item * item for item in range(30)]
    # The C library gives the memory of a worker to the next one only if it has ended.
    assert not readers()


def test_no_more_is_read_than_is_ahead():
    begun = []
    items = read_ahead(begun.append, range(100), 2, 4)
    for _ in range(10):
        next(items)
        wait_until(lambda: len(begun) >= 4)
    # Those asked for, those ahead, and the one that replaces the item that was given last.
    wait_until(lambda: len(begun) == 14)
    time.sleep(0.05)
    assert len(begun) == 14
    items.close()
    wait_until(lambda: not readers())


def test_without_workers_an_item_is_read_when_it_is_asked_for():
    begun = []
    next(read_ahead(begun.append, range(100), 0, 8))
    assert len(begun) == 1


def test_an_error_is_raised_where_its_item_is_asked_for_and_ends_the_reading():
    def read(item):
        if item == 5:
            raise ValueError("item 5")
        return item

    items = read_ahead(read, range(100), 2, 4)
    assert [next(items) for _ in range(5)] == list(range(5))
    with pytest.raises(ValueError, match="item 5"):
        next(items)
    wait_until(lambda: not readers())


def test_an_iteration_that_ends_early_does_not_wait_for_a_file_system_that_hangs():
    answers = threading.Event()
    threading.Timer(3, answers.set).start()
    items = read_ahead(lambda item: item == 0 or answers.wait(), range(100), 2, 4)
    next(items)
    begun = time.monotonic()
    items.close()
    assert time.monotonic() - begun < 2
    answers.set()
    wait_until(lambda: not readers())


def test_workers_have_the_cores_beyond_those_that_the_rank_computes_on(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 6, 7})
    assert cores_of_workers(1, True) == {6, 7}
    assert cores_of_workers(3, True) is None
    assert cores_of_workers(1, False) is None


def test_a_worker_is_bound_to_its_cores():
    cores = {max(os.sched_getaffinity(0))}
    assert list(read_ahead(lambda _: os.sched_getaffinity(0), range(3), 1, 1, cores)) == [cores] * 3
    assert list(read_ahead(lambda _: os.sched_getaffinity(0), range(1), 1, 1)) == [os.sched_getaffinity(0)]
