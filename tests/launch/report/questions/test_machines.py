"""Several machines: ratios within each side by side, whether one backend wins on all, and how the machines differ."""

import re

import pytest

from common.errors import UserError
from launch.report import several
from launch.report.export import markdown, pictures, svg
from tests.support.answers import lines
from tests.support.made_records import ended, made, on, repeats, typed

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
    return several.of_machines(typed([*here, *on("there", there)]))


HERE = matrix(ddp=10.0, horovod_tf=13.0)


@pytest.mark.parametrize(
    ("elsewhere", "counted", "sentence"),
    [
        (matrix(ddp=100.0, horovod_tf=140.0), "yes for 1", "ddp is fastest on here and there."),
        (
            matrix(ddp=140.0, horovod_tf=100.0), "no for 1",
            "no backend is fastest on all machines: on here ddp; on there horovod_tf.",
        ),
        (
            matrix(ddp=100.4, horovod_tf=100.0, single=90.0), "not decided for 1",
            "the intervals leave open whether one backend is fastest on all machines; single may be: on here ddp; on there single.",
        ),
        (
            matrix(ddp=100.4, horovod_tf=100.0), "not decided for 1",
            "the intervals leave open whether one backend is fastest on all machines; ddp may be: on here ddp; on there horovod_tf or ddp.",
        ),
        (
            matrix(5, ddp=140.0, horovod_tf=100.0), "not decided for 1",
            "the lowest time so far has ddp on here and horovod_tf on there; a verdict takes 6 repeats on each.",
        ),
        (
            [*matrix(ddp=100.0, horovod_tf=140.0), *matrix(changes={"exact": False}, post_local_sgd=50.0, weight_averaging=100.4)],
            "yes for 1",
            "ddp is fastest on here and there.",
        ),
    ],
)  # fmt: skip
def test_the_winner_is_the_same_another_or_open_as_the_intervals_of_each_machine_show(elsewhere, counted, sentence):
    several_answer = answer(HERE, elsewhere)
    assert several_answer.headline == [f"Is the same backend fastest on here and there? {counted.capitalize()} of 1 workloads and sizes."]
    assert several_answer.sections[0].sentences == [f"cnn, weak scaling, 1 rank: {sentence}"]


def test_a_ratio_is_that_of_the_report_of_its_machine_alone():
    elsewhere = matrix(ddp=140.0, horovod_tf=100.0, single=120.0)
    table = answer(HERE, elsewhere).sections[0].tables[0]
    assert [column.name for column in table.columns] == ["ranks", "backend", "here", "there"]
    for records, column in ((HERE, 2), (elsewhere, 3)):
        alone = {
            row["backend"]: (f"{row['ratio to fastest']:.2f} ({row['95 % interval']}), " if row["95 % interval"] else "1, ")
            + row["verdict"]
            for row in lines(records, "first")
        }
        assert {row[1]: row[column] for row in table.rows if row[column]} == alone
    assert [row[2] for row in table.rows if row[1] == "single"] == [None]


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
    assert several_answer.headline[0].startswith("No workload and size has two backends")
    assert [table.title for table in several_answer.sections[0].tables] == ["The machines"]
    assert pictures.of(several_answer)["machines"] == []


def test_the_machines_differ_in_device_versions_and_settings():
    elsewhere = on(
        "there", matrix(changes={"settings": {"threads": 2}}, ddp=10.0), device="cuda", packages={"torch": "2.14.0"}, num_cores=16
    )
    several_answer = several.of_machines(typed([*on("here", HERE, device="cpu"), *elsewhere]))
    assert several_answer.sections[0].tables[-1].rows == [
        ("device", "cpu", "cuda"), ("processor", "a processor", "a processor"), ("cores", "4", "16"), ("torch", "2.13.0", "2.14.0"),
        ("--threads", "1", "2"),
    ]  # fmt: skip


def test_machines_of_one_name_and_other_products_are_told_apart_and_a_slow_library_is_named_on_its_machine():
    def ran(ddp_peak, tf_peak):
        peaks = {"ddp": ddp_peak, "horovod_tf": tf_peak}
        return [record | {"peak_flops_per_second": peaks[record["backend"]]} for record in matrix(ddp=10.0, horovod_tf=13.0)]

    def sentences(here, there):
        several_answer = several.of_machines(typed([*on("here", here, cpu="AMD"), *on("there", there, cpu="AMD")]))
        assert "fastest product" in [row[0] for row in several_answer.sections[0].tables[-1].rows]
        return several_answer.sections[0].sentences[:-1]

    assert sentences(ran(105e9, 108e9), ran(116e9, 245e9)) == [
        "here and there are different machines with one name of their processors, AMD: "
        "products of TensorFlow reach 108 and 245 GFLOP/s, more than 5 % apart.",
        "there: PyTorch's float32 products reach 47 % of this core (116 of 245 GFLOP/s, TensorFlow): "
        "MKL takes slower kernels on processors of other vendors than Intel, and with --mkl-kernels fast the fast ones.",
    ]
    assert sentences(ran(105e9, 108e9), ran(106e9, 107e9)) == []


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
    (chart,) = pictures.of(several_answer)["machines"]
    rows = chart.spec["data"]["values"]
    assert [(row["at"], row["backend"], row["low"] is None) for row in rows] == [
        ("1 rank, here", "ddp", True), ("1 rank, here", "horovod_tf", False),
        ("1 rank, there", "horovod_tf", True), ("1 rank, there", "ddp", False),
    ]  # fmt: skip
    assert all(1 < row["low"] < row["ratio"] < row["high"] for row in rows if row["low"])
    assert {"1 rank, here", "1 rank, there"} <= set(re.findall(r">([^<>]+)</text>", svg.text(several_answer)))
    text = markdown.text(several_answer)
    assert text.startswith("# Tandem on here and there\n")
    assert "compare its records alone" in text
