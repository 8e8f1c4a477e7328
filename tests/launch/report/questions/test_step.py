"""The parts of a step, and the time in MPI of traced runs."""

import pytest

from tests.support.answers import line, lines, section
from tests.support.made_records import made, step_breakdown


def test_the_parts_of_a_step_are_means_over_runs_and_ranks():
    odd = step_breakdown()
    odd["compute_seconds"] = [0.002, 0.004]
    odd["communication_seconds"] = [0.008, None]
    nothing = {key: [] for key in ("losses", "step_seconds", "train_seconds", "eval_seconds", "accuracies", "eval_losses")}
    nothing |= {"resumed_after_epochs": 2, "time_to_solution_seconds": None}
    changes_of_runs = ({"step_breakdown": step_breakdown()}, {"step_breakdown": odd}, nothing)
    records = [*(made(num_ranks=2, repeat=number, **changes) for number, changes in enumerate(changes_of_runs)), made()]
    (row,) = lines(records, "step")
    assert row["step in training (ms)"] == pytest.approx(2000.0)
    assert [
        row[f"{part} (ms)"] for part in ("step in breakdown", "data wait", "compute", "exposed communication", "communication")
    ] == pytest.approx([10.0, 1.0, 4.5, 3.0, 7.0])
    assert [row[name] for name in ("sent (MB)", "bus bandwidth (MB/s)")] == [5.0, 500.0]


@pytest.mark.parametrize(
    ("changes", "milliseconds"),
    [({"train_seconds": [None, 4.0]}, pytest.approx(2000.0)), ({"train_seconds": [None]}, None)],
)
def test_the_step_in_training_with_unknown_values(changes, milliseconds):
    assert line([made(num_ranks=2, step_breakdown=step_breakdown(), **changes)], "step")["step in training (ms)"] == milliseconds


def added(*by_run, num_ranks=2, **changes):
    """Runs whose step without communication is so many milliseconds shorter."""
    return [
        made(num_ranks=num_ranks, repeat=repeat, step_breakdown=step_breakdown(exposed=milliseconds, num_ranks=num_ranks), **changes)
        for repeat, milliseconds in enumerate(by_run)
    ]


def test_what_a_backend_adds_at_1_rank_is_no_exposed_communication():
    parts = ("overhead at 1 rank (ms)", "exposed communication (ms)", "exposed, 95 % interval (ms)", "overhead, 95 % interval (ms)")
    records = [*added(2.0, 2.5, 2.25, num_ranks=1), *added(6.75, 9.5, 4.0)]
    assert [tuple(row[part] for part in parts) for row in lines(records, "step")] == [
        (pytest.approx(2.25), 0.0, None, "1.6 to 2.9"),
        (pytest.approx(2.25), "below the noise", "-2.0 to 11.0", "1.6 to 2.9"),
    ]
    # An interval with 0 shows no share.
    assert section(records, "step").sentences == [
        "cnn, weak scaling, 2 ranks: exposed communication is below the noise (±6.5 ms) with ddp."
    ]
    assert line(records, "cost", ranks=2)["exposed share of a step (%)"] is None
    records = [*added(2.0, 2.5, 2.2, num_ranks=1), *added(6.0, 6.5, 6.3)]
    assert line(records, "step", ranks=2)[parts[2]] == "3.9 to 4.2"
    assert section(records, "step").sentences == ["cnn, weak scaling, 2 ranks: exposed communication is 30 % (ddp) of a step."]
    assert round(line(records, "cost", ranks=2)["exposed share of a step (%)"]) == 30
    assert [line(added(6.0), "step")[part] for part in parts] == [None, pytest.approx(6.0), None, None]


def test_exposed_communication_below_0_is_no_number_but_below_the_noise():
    one_run = [*added(2.0, num_ranks=1), *added(1.0)]
    assert line(one_run, "step", ranks=2)["exposed communication (ms)"] == "below the noise"
    assert section(one_run, "step").sentences == ["cnn, weak scaling, 2 ranks: exposed communication is below the noise with ddp."]
    both = [*one_run, *added(0.0, num_ranks=1, backend="horovod_tf"), *added(3.0, backend="horovod_tf")]
    sentence = "is 3.0 ms (horovod_tf) of a step as measured, without an interval, and is below the noise with ddp."
    assert section(both, "step").sentences == [f"cnn, weak scaling, 2 ranks: exposed communication {sentence}"]


def test_exposed_communication_is_the_mean_that_its_interval_is_of_and_adds_up_to_the_step():
    """A trimmed mean would be 3 ms, with the interval of the mean about it."""
    row = line([*added(*[0.0] * 6, num_ranks=1), *added(3.0, 3.0, 3.0, 3.0, 3.0, 9.0)], "step", ranks=2)
    assert (row["exposed communication (ms)"], row["exposed, 95 % interval (ms)"]) == (pytest.approx(4.0), "1.4 to 6.6")
    assert row["step in breakdown (ms)"] == pytest.approx(1.0 + 6.0 + 4.0)


def test_exposed_communication_is_given_without_oversubscription():
    by_backend = [
        {"step_breakdown": step_breakdown(exposed=0.0, num_ranks=1)},
        {"num_ranks": 2, "step_breakdown": step_breakdown()},
        {"backend": "horovod_tf", "step_breakdown": step_breakdown(exposed=0.0, num_ranks=1)},
        {"backend": "horovod_tf", "num_ranks": 2, "step_breakdown": step_breakdown(compute=8.0, exposed=1.0)},
        {"num_ranks": 8, "oversubscribed": True, "step_breakdown": step_breakdown(exposed=90.0, num_ranks=8)},
    ]
    # Two runs have no interval, which a share needs.
    assert section([made(**keys, repeat=repeat) for keys in by_backend for repeat in range(2)], "step").sentences == [
        "cnn, weak scaling, 2 ranks: exposed communication is 1.0 ms (horovod_tf) to 3.0 ms (ddp) of a step as measured, "
        "without an interval."
    ]
    answer = section([made(**keys, repeat=repeat) for keys in by_backend for repeat in range(3)], "step")
    assert answer.sentences == ["cnn, weak scaling, 2 ranks: exposed communication is 10 % (horovod_tf) to 30 % (ddp) of a step."]
    assert [row["oversubscribed"] for row in answer.tables[0].rows] == [None, None, "yes", None, None]


KINDS = {
    "control": {"num_calls": 806, "size_bytes": 16120, "seconds": 6.66},
    "payload": {"num_calls": 212, "size_bytes": 326e6, "seconds": 1.61},
}  # fmt: skip


def traced(kinds, bandwidth=None, **changes):
    rank_0 = {"communication_seconds": 8.28, "kinds": kinds, "payload_bytes_per_second": bandwidth}
    return made(num_ranks=2, settings={"trace": "mpi"}, mpi_profile={"ranks": {"0": rank_0}, "problems": []}, **changes)


@pytest.mark.parametrize(
    ("kinds", "bandwidth", "row"),
    [
        (KINDS, 202e6, ["806", "6.66", "212", "1.61", "326.00", "202"]),
        # A library that does not separate control from payload.
        (None, None, []),
    ],
)
def test_control_and_payload_of_traced_runs(kinds, bandwidth, row):
    answer = section([made(num_ranks=2), traced(kinds, bandwidth, stamp="20260102-000000")], "step")
    assert (answer.sentences, answer.tables[0].texts) == ([], [["cnn", "ddp", "2", "8.28", *row]])
