"""The threads that a function starts, and the seconds that they take from the others."""

import hashlib
import os
import threading
import time

import pytest

from common.process import threads
from common.process.threads import Times


def test_the_threads_that_a_function_starts_and_leaves_are_known():
    ended = threading.Event()
    left = threading.Thread(target=ended.wait)

    def start():
        left.start()
        joined = threading.Thread(target=time.sleep, args=(0.01,))
        joined.start()
        joined.join()
        # The kernel removes a thread a moment after Python has joined it.
        while joined.native_id and os.path.exists(threads.TASKS / str(joined.native_id)):
            time.sleep(0.001)

    try:
        assert threads.started_by(start) == {left.native_id}
    finally:
        ended.set()
        left.join()


@pytest.mark.parametrize(
    ("main", "others", "taken"),
    [
        # On one core the main thread waits while the takers compute, and also for programs beside.
        (Times(5.0, 4.0), {}, 3.0),
        # There is a core to spare.
        (Times(5.0, 0.1), {}, 0.1),
        # A worker of the computation is kept waiting, which the main thread waits for without asking for a core.
        (Times(5.0, 0.0), {4: Times(5.0, 4.0)}, 3.0),
        # A thread that began or ended meanwhile is not known.
        (Times(5.0, 0.0), {5: Times(5.0, 4.0)}, 0.0),
    ],
)
def test_threads_take_what_they_compute_while_another_waits(main, others, taken):
    before = {number: Times(1.0, 1.0) for number in (1, 2, 3, 4)}
    spent = {1: main, 2: Times(2.0, 9.0), 3: Times(1.0, 9.0)} | others
    after = {number: Times(*(1.0 + seconds for seconds in times)) for number, times in spent.items()}
    assert threads.taken_seconds(before, after, {2, 3}) == pytest.approx(taken)
    assert threads.taken_seconds({}, {}, {2, 3}) == 0


@pytest.mark.skipif(not threads.times(), reason="this kernel does not count how long threads wait")
def test_a_thread_on_the_core_of_the_computation_takes_as_long_as_it_computes():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    begin, end, computed = threading.Event(), threading.Event(), []

    def take():
        begin.wait()
        begun = time.thread_time()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)
        computed.append(time.thread_time() - begun)
        end.wait()

    taker = threading.Thread(target=take)
    try:
        taker.start()
        before = threads.times()
        begin.set()
        while not computed:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000)
        taken = threads.taken_seconds(before, threads.times(), {taker.native_id})
    finally:
        end.set()
        os.sched_setaffinity(0, cores)
        taker.join()
    assert taken == pytest.approx(computed[0], rel=0.1)
