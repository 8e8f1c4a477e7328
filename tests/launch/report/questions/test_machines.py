"""Several machines: the ratios within each side by side, and how the machines differ."""

import re

import pytest

from common.errors import UserError
from launch.report.export import markdown
from tests.support.answers import answered, drawn, lines, picture
from tests.support.made_records import ended, made, on, repeats

# Noise of runs, another for each backend.
NOISE = ((1.0, 1.01, 0.99, 1.02, 0.98, 1.0), (0.98, 1.0, 1.02, 1.0, 1.01, 0.99), (1.01, 0.98, 1.0, 0.99, 1.0, 1.02))


def matrix(num_repeats=6, changes=None, **seconds_by_backend):
    """A matrix whose backends have these times to solution, with noise. `changes`: those of its records."""
    return [
        record
        for noise, (backend, seconds) in zip(NOISE, seconds_by_backend.items(), strict=False)
        for record in repeats([seconds * factor for factor in noise[:num_repeats]], backend=backend, **changes or {})
    ]


def answer(here, there):
    return answered([*here, *on("there", there)])


HERE = matrix(ddp=10.0, horovod_tf=13.0)


@pytest.mark.parametrize(
    ("elsewhere", "fastest_there"),
    [
        (matrix(ddp=140.0, horovod_tf=100.0), "horovod_tf"),
        (matrix(ddp=100.4, horovod_tf=100.0), "horovod_tf or ddp"),
        # Too few repeats for a verdict.
        (matrix(5, ddp=100.4, horovod_tf=100.0), "horovod_tf"),
        ([*HERE, *matrix(changes={"exact": False}, post_local_sgd=5.0, weight_averaging=6.0)], "ddp"),
    ],
)
def test_each_machine_has_the_fastest_of_its_own_intervals(elsewhere, fastest_there):
    several_answer = answer(HERE, elsewhere)
    assert several_answer.sections[0].sentences == [
        f"cnn, weak scaling, 1 rank: fastest on here is ddp; on there is {fastest_there}.", "From here to there: no difference.",
    ]  # fmt: skip


def test_a_ratio_is_that_of_the_report_of_its_machine_alone():
    elsewhere = matrix(ddp=140.0, horovod_tf=100.0, single=120.0)
    table = answer(HERE, elsewhere).sections[0].tables[0]
    assert table.headings == ["backend", "ranks", "here", "there"]
    for records, machine in ((HERE, "here"), (elsewhere, "there")):
        alone = {
            row["backend"]: (f"{row['ratio to fastest']:.2f} ({row['95 % interval']}), " if row["95 % interval"] else "1, ")
            + row["verdict"]
            for row in lines(records, "first")
        }
        assert {row["backend"]: row[machine] for row in table.rows if row[machine]} == alone
    assert [row["here"] for row in table.rows if row["backend"] == "single"] == [None]


@pytest.mark.parametrize(
    "elsewhere",
    [
        matrix(changes={"num_ranks": 2}, ddp=5.0, horovod_tf=6.0),
        matrix(changes={"oversubscribed": True}, ddp=5.0, horovod_tf=6.0),
        [*matrix(ddp=5.0), ended("failed", backend="horovod_tf")],
    ],
)
def test_what_two_machines_do_not_have_is_not_compared(elsewhere):
    several_answer = answer(HERE, elsewhere)
    assert several_answer.sections[0].sentences[0].startswith("No workload and size has two backends")
    assert several_answer.sections[0].tables == []
    assert drawn(several_answer)["answer"] == []


def test_the_machines_differ_in_device_versions_and_settings():
    elsewhere = on(
        "there", matrix(changes={"settings": {"threads": 2}}, ddp=10.0), device="cuda", packages={"torch": "2.14.0"}, num_cores=16
    )
    several_answer = answered([*on("here", HERE, device="cpu"), *elsewhere])
    assert several_answer.sections[0].sentences[-1] == (
        "From here to there: device cpu to cuda, threads 1 to 2, cores 4 to 16, torch 2.13.0 to 2.14.0."
    )


def test_a_slow_library_is_named_on_its_machine():
    def ran(ddp_peak, tf_peak):
        peaks = {"ddp": ddp_peak, "horovod_tf": tf_peak}
        return [record | {"peak_flops_per_second": peaks[record["backend"]]} for record in HERE]

    several_answer = answered([*on("here", ran(105e9, 108e9), cpu="AMD"), *on("there", ran(116e9, 245e9), cpu="AMD")])
    assert several_answer.sections[0].sentences[0] == (
        "there: PyTorch multiplies at 47 % of what this core can; --mkl-kernels fast doubles that."
    )


@pytest.mark.parametrize(
    ("elsewhere", "message"),
    [
        ([made(workload_digest="e" * 64, settings={"batch_size": 64})], r"trained different things \(--batch-size 64 and 16\)"),
        ([made(), made(repeat=1, settings={"threads": 2})], "different settings .*--threads 2 and 1"),
    ],
)
def test_other_training_and_runs_of_one_machine_that_differ_are_refused(elsewhere, message):
    with pytest.raises(UserError, match=message):
        answer(HERE, elsewhere)


def test_the_chart_has_every_interval_machine_by_machine_and_is_the_picture():
    several_answer = answer(HERE, matrix(ddp=140.0, horovod_tf=100.0))
    (chart,) = drawn(several_answer)["answer"]
    rows = chart.drawn.to_dict()["data"]["values"]
    assert [row["backend"] for row in rows] == ["ddp", "horovod_tf", "horovod_tf", "ddp"]
    assert [1 < row["low"] < row["ratio"] < row["high"] for row in rows] == [False, True] * 2
    assert {"here, 1 rank", "there, 1 rank", "ddp fastest"} <= set(re.findall(r">([^<>]+)</text>", picture(several_answer)))
    text = markdown.text(several_answer)
    assert text.startswith("# Tandem on here and there\n")
