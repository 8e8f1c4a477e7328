"""MPI events: all calls are recorded or counted as dropped, at the time of the node's clock."""

import time

import numpy as np
import pytest

from common.errors import UserError
from launch.trace import profile
from tests.support.tracing import run_python

CALLS = """
import time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
values = np.ones(1000)
for _ in range(30):
    comm.Barrier()
    comm.Allreduce(MPI.IN_PLACE, values)
time.sleep(0.2)
comm.Barrier()
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    started = time.time_ns()
    done = run_python(tmp_path_factory.mktemp("alone"), CALLS, TANDEM_TRACE_EVENTS=100_000)
    return done, started, time.time_ns()


def only(done):
    return profile.read_events(done.files("mpi_events", ".bin")[0])


def names_of(events):
    """The name of the routine of each call."""
    return np.array(events.names)[events.calls.routine]


def test_every_call_that_was_counted_is_an_event(alone):
    done = alone[0]
    events, counted = only(done), done.only()
    names, calls = names_of(events), events.calls
    assert set(names) == counted.routines.keys()
    for name, sums in counted.routines.items():
        of_routine = calls[names == name]
        assert (len(of_routine), of_routine.size_bytes.sum()) == (sums.num_calls, pytest.approx(sums.size_bytes, abs=5))
        assert of_routine.duration_nanoseconds.sum() / 1e9 == pytest.approx(sums.seconds, abs=1e-6)
    assert [(names == "MPI_Barrier").sum(), (names == "MPI_Allreduce_c").sum(), events.num_dropped] == [31, 30, 0]
    # Those of mpi4py have large counts.
    assert counted.routines["MPI_Allreduce_c"].size_bytes == 30 * 8000
    kinds = {name: profile.KINDS_OF_CALLS[kind] for name, kind in zip(names, calls.kind, strict=True)}
    assert [kinds[name] for name in ("MPI_Barrier", "MPI_Allreduce_c", "MPI_Get_version")] == ["control", "payload", "other"]


def test_times_are_since_1970_and_in_order(alone):
    done, before, after = alone
    events = only(done)
    starts = events.calls.start_nanoseconds
    assert before < starts[0]
    assert (starts + events.calls.duration_nanoseconds).max() < after
    assert (np.diff(starts) >= 0).all()
    assert np.diff(starts[names_of(events) == "MPI_Barrier"])[-1] > 200_000_000
    assert 0 < events.clock_error_nanoseconds < 1_000_000


@pytest.mark.matrix
def test_calls_beyond_the_buffer_are_dropped_and_counted(alone, tmp_path):
    all_events = only(alone[0])
    done = run_python(tmp_path, CALLS + "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", TANDEM_TRACE_EVENTS=50)
    # A program terminated by SIGTERM writes its events.
    assert (done.status, done.only().ended) == (-15, "SIGTERM")
    events = only(done)
    assert len(events.calls) == 50
    assert events.num_dropped == sum(sums.num_calls for sums in done.only().routines.values()) - 50 > 0
    assert names_of(events).tolist() == names_of(all_events)[:50].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda whole: b"", "is not a file of MPI events"),
        (lambda whole: whole[:60], "is truncated or damaged"),
        (lambda whole: whole.replace(b'"num_events"', b'"num"'), "is truncated or damaged .'num_events'"),
        (lambda whole: whole.replace(b'"routines": [', b'"routines": [], "more": ['), "unknown routines or kinds"),
        (lambda whole: whole[:-1], r"it has \d+ of \d+ events"),
    ],
)
def test_a_damaged_file_is_an_error_of_one_line(alone, tmp_path, change, message):
    path = tmp_path / "mpi_events.1.0.bin"
    path.write_bytes(change(alone[0].files("mpi_events", ".bin")[0].read_bytes()))
    with pytest.raises(UserError, match=message) as raised:
        profile.read_events(path)
    assert "\n" not in str(raised.value)
