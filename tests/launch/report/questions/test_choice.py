"""The table to choose a backend by: what was counted, and what theory expects."""

import pytest

from launch.report.tables import MIB
from tests.support.answers import line, lines, section
from tests.support.made_records import ended, made, step_breakdown, tensor_bytes

# Of the CNN in float32, in MB and in MiB.
P_MB, P_MIB = 4.799528, 4_799_528 / MIB
STATE, STATE_EXPECTED = "state per rank (MiB)", "expected (MiB)"
SENT, SENT_EXPECTED, BY = "sent per step (MB)", "by formula (MB)", "by collective (MB)"


def test_a_row_has_what_a_chooser_asks_for():
    held = tensor_bytes((3 * MIB, 2 * MIB, MIB), (3 * MIB, 3 * MIB, MIB))
    records = [made(num_ranks=2, tensor_bytes_by_rank=held, step_breakdown=step_breakdown(compute=6.0, exposed=3.0))]
    row = line(records, "cost")
    assert (row["backend"], row["ranks"], row["seconds per epoch"]) == ("ddp", 2, pytest.approx(4.5))
    # At one point, on the rank that holds most.
    assert (row[STATE], row[STATE_EXPECTED]) == (7.0, pytest.approx(3 * P_MIB))
    # An all-reduce of 4 MB, and a gather to which each of two ranks contributes 1 MB.
    assert (row[SENT], row[BY]) == (pytest.approx(5.0), "all-reduce 4.00, all-gather 1.00")
    assert row[SENT_EXPECTED] == pytest.approx(P_MB)
    assert row["exposed share of a step (%)"] == pytest.approx(30.0)
    assert (row["training"], row["change to the program"]) == ("exact", "wrap in DistributedDataParallel")


def test_older_records_lack_what_was_not_measured_then():
    row = line([made(num_ranks=2)], "cost")
    assert [row[name] for name in (STATE, SENT, "exposed share of a step (%)")] == ["not measured"] * 3
    assert (row[BY], row[STATE_EXPECTED]) == (None, pytest.approx(3 * P_MIB))


def test_throughput_is_beside_the_time_where_a_run_has_it():
    def ran(backend, flops_per_second, peak, tokens=None):
        rates = {"flops_per_second_per_rank": flops_per_second, "peak_flops_per_second": peak, "tokens_per_second": tokens}
        return made(backend=backend, num_ranks=2, **rates)

    records = [ran("ddp", 3e10, 1e11), ran("horovod_tf", 5e10, 2e11), made(num_ranks=2, backend="zero_redundancy")]
    rows = {row["backend"]: row for row in lines(records, "cost")}
    assert list(rows["ddp"])[:5] == ["backend", "ranks", "seconds per epoch", "TFLOP/s per rank", "share of peak (%)"]
    assert [row["TFLOP/s per rank"] for row in rows.values()] == [0.03, 0.05, None]
    # Of the faster product: the devices are the same.
    assert [row["share of peak (%)"] for row in rows.values()] == [pytest.approx(15.0), pytest.approx(25.0), None]
    # One process on several GPUs has no peak of its own.
    several = line([ran("weight_averaging", 9e11, None), ran("ddp", 3e10, 1e11)], "cost", backend="weight_averaging")
    assert several["share of peak (%)"] is None
    with_tokens = line([ran("ddp", 3e10, None, tokens=640.0)], "cost")
    assert (with_tokens["tokens/s"], "share of peak (%)" in with_tokens) == (640.0, False)


def test_a_backend_or_workload_that_is_not_known_here_has_no_theory():
    unknown = line([made(num_ranks=2) | {"backend": "own"}], "cost")
    assert [unknown[name] for name in (STATE_EXPECTED, SENT_EXPECTED, "change to the program")] == [None, None, None]
    assert line([made(num_ranks=2) | {"workload": "later"}], "cost")[SENT_EXPECTED] is None


def test_bytes_of_replicas_are_of_their_own_ranks():
    """Of 4 ranks in two replicas, each gathers 1 MB from one other, not from three."""
    records = [made(backend="fsdp@hsdp", num_ranks=4, step_breakdown=step_breakdown(num_ranks=4))]
    assert line(records, "cost")[BY] == "all-reduce 4.00, all-gather 1.00"


def test_a_collective_of_a_few_bytes_is_not_named():
    breakdown = step_breakdown()
    breakdown["operations"]["all_reduce"]["num_bytes"] = 4.0
    assert line([made(num_ranks=2, step_breakdown=breakdown)], "cost")[BY] == "all-gather 1.00"
    assert line([made(step_breakdown=step_breakdown(num_ranks=1) | {"operations": {}})], "cost")[SENT] == 0


def test_approximate_training_is_named():
    records = [made(num_ranks=2), made(backend="weight_averaging", num_ranks=2, exact=False)]
    assert [row["training"] for row in lines(records, "cost")] == ["exact", "approximate"]


def test_oversubscribed_entries_are_apart_and_failed_ones_left_out():
    records = [made(), ended("failed", num_ranks=2), made(num_ranks=8, oversubscribed=True)]
    fair, shared, *_ = section(records, "cost").tables
    assert [table.title for table in (fair, shared)] == [
        "cnn, weak scaling: which to choose", "cnn, weak scaling: which to choose, oversubscribed: not a scaling measurement",
    ]  # fmt: skip
    assert [[row[1] for row in table.rows] for table in (fair, shared)] == [[1], [8]]
