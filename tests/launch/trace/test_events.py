"""MPI events: all calls are recorded or counted as dropped, clocks agree, and viewers open the converted trace."""

import json
import re
import subprocess
import time

import numpy as np
import pytest

from common.errors import UserError
from common.tracing import chrome
from launch.trace import events
from tests.support.tracing import library, run_python

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
    return events.read(done.files("mpi_events", ".bin")[0])


def names_of(rank_events):
    """The name of the routine of each call."""
    return np.array(rank_events.names)[rank_events.calls.routine]


def test_every_call_that_was_counted_is_an_event(alone):
    done = alone[0]
    rank_events, profile = only(done), done.only()
    names, calls = names_of(rank_events), rank_events.calls
    assert set(names) == profile.routines.keys()
    for name, routine in profile.routines.items():
        of_routine = calls[names == name]
        assert (len(of_routine), of_routine.size_bytes.sum()) == (routine.sums.num_calls, routine.sums.size_bytes)
        assert of_routine.duration_nanoseconds.sum() / 1e9 == pytest.approx(routine.sums.seconds, abs=1e-9)
    assert [(names == "MPI_Barrier").sum(), (names == "MPI_Allreduce_c").sum(), rank_events.num_dropped] == [31, 30, 0]
    # Those of mpi4py have large counts.
    assert profile.routines["MPI_Allreduce_c"].sums.size_bytes == 30 * 8000
    kinds = {name: events.KINDS[kind] for name, kind in zip(names, calls.kind, strict=True)}
    assert [kinds[name] for name in ("MPI_Barrier", "MPI_Allreduce_c", "MPI_Get_version")] == ["control", "payload", "other"]


def test_times_are_since_1970_and_in_order(alone):
    done, before, after = alone
    rank_events = only(done)
    starts = rank_events.calls.start_nanoseconds
    assert before < starts[0]
    assert (starts + rank_events.calls.duration_nanoseconds).max() < after
    assert (np.diff(starts) >= 0).all()
    assert np.diff(starts[names_of(rank_events) == "MPI_Barrier"])[-1] > 200_000_000
    assert 0 <= rank_events.clock_error_nanoseconds < 1_000_000


@pytest.mark.matrix
def test_calls_beyond_the_buffer_are_dropped_and_counted(alone, tmp_path):
    all_events = only(alone[0])
    done = run_python(tmp_path, CALLS + "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", TANDEM_TRACE_EVENTS=50)
    # A program terminated by SIGTERM writes its events.
    assert (done.status, done.only().ended) == (-15, "SIGTERM")
    rank_events = only(done)
    assert len(rank_events.calls) == 50
    # The last calls are those of MPI_Finalize.
    assert rank_events.num_dropped == sum(routine.sums.num_calls for routine in done.only().routines.values()) - 50 > 0
    assert names_of(rank_events).tolist() == names_of(all_events)[:50].tolist()
    assert f"50 calls, {rank_events.num_dropped} dropped" in events.summary(rank_events)


# Sets the clock of one rank five seconds ahead.
WRONG_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    const char *rank = getenv("PMI_RANK");
    if (clock == CLOCK_REALTIME && rank && !strcmp(rank, "1"))
        now->tv_sec += 5;
    return result;
}
"""


@pytest.mark.matrix
def test_a_wrong_clock_is_corrected_to_rank_0s(tmp_path):
    (tmp_path / "clock.c").write_text(WRONG_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c"], check=True)
    libraries = f"{library()}:{tmp_path / 'clock.so'}"
    done = run_python(tmp_path, CALLS, ranks=2, TANDEM_TRACE_EVENTS=10_000, LD_PRELOAD=libraries)
    paths = done.files("mpi_events", ".bin").values()
    heads = [json.loads(path.read_bytes().split(b"\n")[1]) for path in paths]
    assert heads[1]["offset_nanoseconds"] == pytest.approx(-5e9, abs=1e8)
    ranks = [events.read(path) for path in paths]
    assert 0 < sum(rank_events.clock_error_nanoseconds for rank_events in ranks) < 100_000_000
    # No rank leaves a barrier before the last has entered.
    barriers = [rank_events.calls[names_of(rank_events) == "MPI_Barrier"] for rank_events in ranks]
    assert [len(calls) for calls in barriers] == [31, 31]
    last_starts = np.maximum(*(calls.start_nanoseconds for calls in barriers))
    first_ends = np.minimum(*(calls.start_nanoseconds + calls.duration_nanoseconds for calls in barriers))
    assert (last_starts <= first_ends + heads[1]["offset_error_nanoseconds"] + 1000).all()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_trace_has_chromes_format(alone, tmp_path, capsys, name):
    path = tmp_path / name
    assert events.run(events.Arguments((alone[0].files("mpi_events", ".bin")[0],), path)) == 0
    rank_events = only(alone[0])
    assert capsys.readouterr().out == events.summary(rank_events) + "\n"
    trace = list(chrome.events(path))
    calls = [event for event in trace if event["ph"] == "X"]
    zero = chrome.value(path, "otherData.epoch_nanoseconds_of_ts_0")
    assert [round(call["ts"] * 1000) + zero for call in calls] == rank_events.calls.start_nanoseconds.tolist()
    assert [round(call["dur"] * 1000) for call in calls] == rank_events.calls.duration_nanoseconds.tolist()
    assert {(call["pid"], call["tid"]) for call in calls} == {(0, 0)}
    names = {event["args"]["name"] for event in trace if event["ph"] == "M"}
    assert names == {f"rank 0 ({rank_events.host})", "MPI, thread 0"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda whole: b"tandem", "is not a file of MPI events"),
        (lambda whole: b"", "is not a file of MPI events"),
        (lambda whole: whole[:60], "has a truncated or damaged header"),
        (lambda whole: whole.replace(b'"host": "', b'"host": "\xff'), "has a truncated or damaged header"),
        (lambda whole: whole.replace(b'"num_events"', b'"num"'), "a wrong or missing header entry .'num_events'"),
        (lambda whole: events.MAGIC + b"[1]\n", "a wrong or missing header entry"),
        (lambda whole: re.sub(rb'"routines": .*]', b'"routines": []', whole), "unknown routines or kinds"),
        (lambda whole: whole[:-1], r"is truncated after \d+ of \d+ events"),
        (lambda whole: whole[:-32], r"is truncated after \d+ of \d+ events"),
    ],
)
def test_a_damaged_file_is_an_error(alone, tmp_path, change, message):
    path = tmp_path / "mpi_events.1.0.bin"
    path.write_bytes(change(alone[0].files("mpi_events", ".bin")[0].read_bytes()))
    with pytest.raises(UserError, match=message) as raised:
        events.read(path)
    assert "\n" not in str(raised.value)


def test_a_missing_file_or_folder_is_an_error(alone, tmp_path):
    file, missing = alone[0].files("mpi_events", ".bin")[0], tmp_path / "none" / "mpi_events.1.0.bin"
    for path, message in (
        (file, "cannot be written .No such file or directory.; name another file"),
        (missing, "give files mpi_events"),
    ):
        with pytest.raises(UserError, match=message):
            events.run(events.Arguments((path,), missing.with_name("x.json")))
