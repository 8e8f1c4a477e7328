"""MPI events: all calls are recorded or counted as dropped, clocks agree, and viewers open the converted trace."""

import gzip
import json
import re
import subprocess
import time

import numpy as np
import pytest

from common.errors import UserError
from launch.trace import build, events
from tests.support.running import BIN, completed
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
    return events.read(done.files("mpi_events", ".bin")[0])


def test_every_call_that_was_counted_is_an_event(alone):
    done = alone[0]
    found, profile = only(done), done.only()
    names = [found.names[routine] for routine in found.routine]
    assert {name: names.count(name) for name in set(names)} == {name: one.sums.num_calls for name, one in profile.routines.items()}
    for name, one in profile.routines.items():
        assert found.size_bytes[np.array(names) == name].sum() == one.sums.size_bytes
        assert found.duration_nanoseconds[np.array(names) == name].sum() / 1e9 == pytest.approx(one.sums.seconds, abs=1e-9)
    assert [names.count("MPI_Barrier"), names.count("MPI_Allreduce_c"), found.num_dropped] == [31, 30, 0]
    # Those of mpi4py have large counts.
    assert profile.routines["MPI_Allreduce_c"].sums.size_bytes == 30 * 8000


def test_times_are_since_1970_and_in_order(alone):
    done, before, after = alone
    found = only(done)
    barriers = found.start_nanoseconds[found.routine == found.names.index("MPI_Barrier")]
    assert before < found.start_nanoseconds[0]
    assert (found.start_nanoseconds + found.duration_nanoseconds).max() < after
    assert (np.diff(found.start_nanoseconds) >= 0).all()
    assert barriers[-1] - barriers[-2] > 200_000_000
    assert 0 <= found.clock_error_nanoseconds < 1_000_000


def test_the_kind_of_each_event(alone):
    found = only(alone[0])
    kinds = {found.names[routine]: events.KINDS[kind] for routine, kind in zip(found.routine, found.kind, strict=True)}
    assert {name: kinds[name] for name in ("MPI_Barrier", "MPI_Allreduce_c", "MPI_Get_version")} == {
        "MPI_Barrier": "control", "MPI_Allreduce_c": "payload", "MPI_Get_version": "other",
    }  # fmt: skip


@pytest.mark.matrix
def test_calls_beyond_the_buffer_are_dropped_and_counted(alone, tmp_path):
    all_of_them = only(alone[0])
    found = only(run_python(tmp_path, CALLS, TANDEM_TRACE_EVENTS=50))
    assert len(found.start_nanoseconds) == 50
    assert found.num_dropped == len(all_of_them.start_nanoseconds) - 50
    assert [found.names[one] for one in found.routine] == [all_of_them.names[one] for one in all_of_them.routine[:50]]
    assert f"50 calls, {found.num_dropped} dropped" in events.summary(found)


@pytest.mark.matrix
def test_a_program_terminated_by_sigterm_writes_its_events(tmp_path):
    found = only(run_python(tmp_path, CALLS + "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", TANDEM_TRACE_EVENTS=1000))
    assert (found.routine == found.names.index("MPI_Barrier")).sum() == 31


def late_starts(ranks):
    """(the later start, the earlier end) of each barrier of two ranks."""
    barriers = [one.routine == one.names.index("MPI_Barrier") for one in ranks]
    starts = [one.start_nanoseconds[is_barrier] for one, is_barrier in zip(ranks, barriers, strict=True)]
    ends = [start + one.duration_nanoseconds[is_barrier] for start, one, is_barrier in zip(starts, ranks, barriers, strict=True)]
    assert len(starts[0]) == len(starts[1]) == 31
    return np.maximum(*starts), np.minimum(*ends)


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
    both = f"{build.build()}:{tmp_path / 'clock.so'}"
    done = run_python(tmp_path, CALLS, ranks=2, TANDEM_TRACE_EVENTS=10_000, LD_PRELOAD=both)
    heads = [json.loads(path.read_bytes().split(b"\n")[1]) for path in done.files("mpi_events", ".bin").values()]
    assert heads[1]["offset_nanoseconds"] == pytest.approx(-5e9, abs=1e8)
    latest, earliest = late_starts([events.read(path) for path in done.files("mpi_events", ".bin").values()])
    assert (latest <= earliest + heads[1]["offset_error_nanoseconds"] + 1000).all()


@pytest.mark.matrix
def test_ranks_leave_a_barrier_after_the_last_has_entered(tmp_path):
    done = run_python(tmp_path, CALLS, ranks=2, TANDEM_TRACE_EVENTS=10_000)
    first, second = (events.read(path) for path in done.files("mpi_events", ".bin").values())
    error = first.clock_error_nanoseconds + second.clock_error_nanoseconds
    assert 0 < error < 100_000_000
    latest, earliest = late_starts([first, second])
    assert (latest <= earliest + error).all()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_trace_has_chromes_format(alone, tmp_path, name):
    source, target = alone[0].files("mpi_events", ".bin")[0], tmp_path / name
    printed = completed(BIN / "python", "-m", "launch.trace.events", source, "-o", target).stdout
    found = only(alone[0])
    assert printed == events.summary(found) + "\n"
    with gzip.open(target) if name.endswith("gz") else target.open() as file:
        trace = json.load(file)
    calls = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    assert len(calls) == len(found.start_nanoseconds)
    zero = trace["otherData"]["epoch_nanoseconds_of_ts_0"]
    for call, start, duration in zip(calls, found.start_nanoseconds, found.duration_nanoseconds, strict=True):
        assert round(call["ts"] * 1000) + zero == start
        assert round(call["dur"] * 1000) == duration
        assert (call["pid"], call["tid"]) == (0, 0)
    assert {one["args"]["name"] for one in trace["traceEvents"] if one["ph"] == "M"} == {f"rank 0 ({found.host})", "MPI, thread 0"}
    assert list(tmp_path.iterdir()) == [target]


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


def test_a_trace_that_cannot_be_written_is_an_error(alone, tmp_path):
    with pytest.raises(UserError, match=r"none/x\.json cannot be written .No such file or directory.; name another file with -o"):
        events.write_chrome([only(alone[0])], tmp_path / "none" / "x.json")


def test_a_usage_error_has_exit_status_2(tmp_path):
    done = completed(BIN / "python", "-m", "launch.trace.events", tmp_path / "none.bin", "-o", tmp_path / "trace.json")
    assert (done.returncode, done.stderr.count("\n"), list(tmp_path.iterdir())) == (2, 1, [])
