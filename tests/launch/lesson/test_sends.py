"""The lesson of what each way sends: what it runs, and what it concludes from what was counted."""

from pathlib import Path

import pytest

from common import backends, workloads
from common.cost import sharing
from launch.lesson.sends import Sends, Sent, conclusion, sends_jobs, sent_of, tables
from tests.support.made_records import ended, made, step_breakdown, typed
from tests.support.running import BIN, completed, left_over, records_in

# Of the CNN in float32.
P = 4_799_528
RING = "2(n-1)/n P"


def counted(backend, num_ranks=2, **num_bytes):
    """A record whose step breakdown has counted these bytes of collectives."""
    operations = {name: {"num_calls": 1.0, "num_bytes": float(size)} for name, size in num_bytes.items()}
    return made(backend=backend, num_ranks=num_ranks, step_breakdown=step_breakdown(num_ranks=num_ranks) | {"operations": operations})


def sent(name, num_bytes, expected=None, formula="a formula"):
    return Sent(name, num_bytes, "all-reduce", expected and formula, expected)


def test_each_way_is_run_once_for_an_epoch_with_its_bytes_counted(capsys):
    jobs = sends_jobs(Sends(ranks=3), Path("there"), "here", "stamp-lesson")
    assert {"ddp", "fsdp", "fsdp@keep", "deepspeed_zero", "deepspeed_zero@0", "deepspeed_zero@3"} < {job.backend for job in jobs}
    assert {"single", "ddp@mpi", "deepspeed_zero@1", "weight_averaging@2"}.isdisjoint(job.backend for job in jobs)
    for job in jobs:
        settings = workloads.resolve(job.settings, job.num_ranks)
        assert (settings.workload, settings.epochs, settings.stop_at_target, settings.step_breakdown) == ("cnn", 1, False, True)
    assert jobs[0].settings.run_id.startswith("stamp-lesson-sends-cnn-")
    # What cannot train at 3 ranks is left out.
    assert "fsdp@hsdp" in sharing.every_way()
    assert "fsdp@hsdp" not in {job.backend for job in jobs}
    assert "fsdp@hsdp takes a multiple of 2 ranks" in capsys.readouterr().err


def test_the_chosen_ways_are_run_as_given():
    names = "fsdp,ddp@mpi,deepspeed_zero@1"
    jobs = sends_jobs(Sends(backends=names, workload="transformer"), Path("there"), "here", "stamp")
    assert [job.backend for job in jobs] == ["fsdp", "ddp@mpi", "deepspeed_zero"]
    assert {job.settings.workload for job in jobs} == {"transformer"}
    assert set(sharing.every_way()) >= set(backends.declared()) - {"single"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (counted("ddp", all_reduce=P), Sent("ddp", P, "all-reduce", RING, P)),
        (counted("ddp", num_ranks=4, all_reduce=P), Sent("ddp", 1.5 * P, "all-reduce", RING, 1.5 * P)),
        # A flag of four bytes is no exchange.
        (
            counted("fsdp", all_gather=P, reduce_scatter=P, all_reduce=4),
            Sent("fsdp", 1.5 * P + 4, "all-gather, reduce-scatter", "3(n-1)/n P", 1.5 * P),
        ),
        (counted("own", send=100), Sent("own", 100.0, "send", None, None)),
        (ended("failed", num_ranks=2), None),
        (made(num_ranks=2), None),
        (counted("ddp"), None),
    ],
)
def test_what_a_run_sends(record, expected):
    assert sent_of(*typed([record])) == expected


def test_rows_have_the_formula_beside_what_was_counted():
    (table,) = tables([sent("fsdp", 1500.0, 1200.0), sent("own", 7.0)])
    assert table.texts == [
        ["fsdp", "all-reduce", "1,500", "a formula", "1,200", "1.25"],
        ["own", "all-reduce", "7", "-", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("sents", "sentences"),
    [
        ([], ["nothing to compare: no run has counted what it sends"]),
        ([sent("ddp", 1000.0, 1000.0)], ["ddp sends 1,000 bytes a step", "it sends what the formula gives"]),
        ([sent("own", 1000.0)], ["own sends 1,000 bytes a step"]),
        (
            [sent("rare", 250.0, 250.0), sent("ddp", 1000.0, 1000.0, RING), sent("keras", 1001.0, 1000.0), sent("fsdp", 1500.0, 1500.0)],
            [
                "ddp and keras send the same, 1,000 bytes a step; rare sends 0.25 times as much; fsdp sends 1.50 times as much",
                "each sends what the formula gives",
            ],
        ),
        (
            [sent("ddp", 1000.0, 1000.0, RING), sent("a", 1500.0, 1000.0), sent("b", 1500.0, 1000.0), sent("c", 1000.0, 1500.0)],
            [
                "ddp and c send the same, 1,000 bytes a step; a and b send 1.50 times as much",
                "other than by formula: c sends 0.67 times; a and b send 1.50 times the formula's bytes",
            ],
        ),
    ],
)  # fmt: skip
def test_the_sentences_say_what_the_numbers_show(sents, sentences):
    assert conclusion(sents) == sentences


@pytest.mark.matrix
@pytest.mark.long
def test_the_lesson_runs_and_shows_that_fsdp_sends_more(checkout, tmp_path):
    lesson = ("sends", "--backends", "ddp,gradient_averaging,fsdp", "--results", tmp_path, "--machine", "here")
    done = completed(BIN / "python", "-m", "launch.lessons", *lesson, cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_over(checkout) == []
    assert len(records_in(tmp_path)) == 3
    assert "gradient_averaging and ddp send the same" in done.stdout or "ddp and gradient_averaging send the same" in done.stdout
    assert "; fsdp sends 1.50 times as much" in done.stdout
    assert "each sends what the formula gives" in done.stdout
