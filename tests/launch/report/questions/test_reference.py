"""Judging a machine against the committed sets: the second machine misses as was found by hand, and a set agrees with itself."""

import pytest

from common.errors import UserError
from launch.report import collect
from launch.report.questions import reference
from tests.support.made_records import made, typed

TWO_CORES, ZEN5, ZEN5_FAST = reference.SETS


@pytest.fixture(scope="module")
def zen5():
    return collect.collect([ZEN5])[0]


def test_the_second_machine_differs_in_ten_of_twelve_ratios_by_the_framework_most_and_its_own_set_is_left_out(zen5):
    section = reference.section(zen5)
    rows = [dict(zip([column.name for column in table.columns], row, strict=True)) for table in section.tables for row in table.rows]
    assert len(rows) == 12
    assert {row["backend"] for row in rows if row["verdict"] == reference.OPEN} == {"horovod_keras"}
    assert sum(row["verdict"] == reference.DIFFERS for row in rows) == 10
    assert all(row["by what remains"] == pytest.approx(1, abs=0.01) for row in rows)
    text = " ".join(section.sentences)
    assert "against zen5" not in text
    assert (
        "cnn, weak scaling, 2 ranks, against two-cores, 6 ratios to horovod_tf (agrees within 5 %: 0, differs: 5, open: 1). Most by the"
        in text
    )
    assert "most by the library: deepspeed_zero (1.34, of it 1.13)" in text
    assert "matrix products of TensorFlow are 2.13 times as fast as those of PyTorch here, and 1.02 times there" in text


def test_a_matrix_is_judged_against_the_sets_with_its_kernels_of_mkl():
    default, fast = (collect.collect([ZEN5_FAST.parent / name])[0] for name in ("zen5-default", "zen5-fast"))
    against = [
        {sentence.split("against ")[1].split(",")[0].split(":")[0] for sentence in reference.section(of).sentences}
        for of in (default, fast)
    ]
    assert against == [{"two-cores", "zen5"}, set()]
    copied = typed([made(backend=name, settings={"mkl_kernels": "fast"}) for name in ("ddp", "horovod_tf")])
    with pytest.raises(UserError, match="trained different things"):
        reference.section(copied)


def test_the_session_on_zen5_agrees_with_the_earlier_ones_there():
    (sentence,) = [
        sentence
        for sentence in reference.answer(ZEN5, collect.collect([ZEN5.parent / "zen5-default"])[0], collect.collect([ZEN5])[0]).sentences
        if sentence.startswith("transformer")
    ]
    assert "differs: 0" in sentence


def test_no_ratio_of_a_second_matrix_on_one_machine_differs():
    first, second = (collect.collect(sorted(TWO_CORES.glob(f"20261125-{begun}-*")))[0] for begun in ("172137", "175814"))
    findings = reference.answer(TWO_CORES, second, first)
    verdicts = [row[[column.name for column in table.columns].index("verdict")] for table in findings.tables for row in table.rows]
    assert len(verdicts) == 30
    assert reference.DIFFERS not in verdicts
    assert not any("matrix products" in sentence for sentence in findings.sentences)


def test_a_ratio_that_is_the_same_agrees(zen5):
    findings = reference.answer(ZEN5, zen5, zen5)
    verdicts = {row[7] for table in findings.tables for row in table.rows}
    assert reference.DIFFERS not in verdicts
    assert all(row[5] == 1 for table in findings.tables for row in table.rows)


def test_nothing_in_common_is_said_and_other_training_is_refused():
    alone = typed([made(workload="transformer-lab")])
    assert reference.section(alone).sentences == [
        f"Against {name}: nothing to judge, since no workload and size has two backends in both." for name in ("two-cores", "zen5")
    ]
    with pytest.raises(UserError, match="trained different things"):
        reference.section(typed([made(num_ranks=2)]))
