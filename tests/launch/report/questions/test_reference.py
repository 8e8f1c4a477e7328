"""Judging a machine against the committed sets: the second machine misses as was found by hand, and a set agrees with itself."""

import pytest

from common.errors import UserError
from launch.report import collect
from launch.report.questions import reference
from tests.support.made_records import made, typed

TWO_CORES, ZEN4_DEFAULT, ZEN5_DEFAULT, ZEN4_FAST, ZEN5_FAST = reference.SETS
# An earlier matrix of seven backends on the processor of ZEN5_DEFAULT.
ZEN5 = ZEN5_DEFAULT.with_name("zen5")


@pytest.fixture(scope="module")
def zen5():
    return collect.collect([ZEN5])[0]


@pytest.fixture(scope="module")
def zen5_default():
    return collect.collect([ZEN5_DEFAULT])[0]


def test_another_machine_differs_in_ten_of_twelve_ratios_by_the_framework_most(zen5):
    findings = reference.answer(TWO_CORES, zen5, collect.collect([TWO_CORES])[0])
    rows = [dict(zip([column.name for column in table.columns], row, strict=True)) for table in findings.tables for row in table.rows]
    assert len(rows) == 12
    assert {row["backend"] for row in rows if row["verdict"] == reference.OPEN} == {"horovod_keras"}
    assert sum(row["verdict"] == reference.DIFFERS for row in rows) == 10
    assert all(row["by what remains"] == pytest.approx(1, abs=0.01) for row in rows)
    text = " ".join(findings.sentences)
    assert (
        "cnn, weak scaling, 2 ranks, against two-cores, 6 ratios to horovod_tf (agrees within 5 %: 0, differs: 5, open: 1). Most by the"
        in text
    )
    assert "most by the library: deepspeed_zero (1.34, of it 1.13)" in text
    assert "matrix products of TensorFlow are 2.13 times as fast as those of PyTorch here, and 1.02 times there" in text


def test_a_matrix_is_judged_against_the_sets_with_its_kernels_of_mkl_except_its_own(zen5, zen5_default, monkeypatch):
    zen5_fast = collect.collect([ZEN5_FAST])[0]
    against = [
        {sentence.split("against ")[1].split(",")[0].split(":")[0] for sentence in reference.section(of).sentences}
        for of in (zen5, zen5_default, zen5_fast)
    ]
    assert against == [{"two-cores", "zen4-default", "zen5-default"}, {"two-cores", "zen4-default"}, {"zen4-fast"}]
    monkeypatch.setattr(reference, "SETS", (ZEN5_DEFAULT, ZEN5_FAST))
    assert reference.section(zen5_fast).sentences == ["No other committed set has --mkl-kernels fast."]
    copied = typed([made(backend=name, settings={"mkl_kernels": "fast"}) for name in ("ddp", "horovod_tf")])
    with pytest.raises(UserError, match="trained different things"):
        reference.section(copied)


def test_an_earlier_matrix_on_the_processor_of_a_set_agrees_with_it(zen5, zen5_default):
    (sentence,) = [line for line in reference.answer(ZEN5_DEFAULT, zen5, zen5_default).sentences if line.startswith("transformer")]
    assert "differs: 0" in sentence


def test_no_ratio_of_the_fourth_generation_is_shown_to_differ_from_the_machine_whose_processor_was_not_recorded():
    zen4, two_cores = (collect.collect([folder])[0] for folder in (ZEN4_DEFAULT, TWO_CORES))
    findings = reference.answer(TWO_CORES, zen4, two_cores)
    verdicts = [row[[column.name for column in table.columns].index("verdict")] for table in findings.tables for row in table.rows]
    assert reference.DIFFERS not in verdicts
    page = " ".join((ZEN4_DEFAULT.parents[1] / "README.md").read_text().split())
    assert f"none of their {len(verdicts)} ratios is shown to differ" in page


def test_between_two_processors_the_ratios_of_a_transformer_on_one_core_differ_by_the_kernels_of_mkl():
    counts = []
    for here, there in ((ZEN4_DEFAULT, ZEN5_DEFAULT), (ZEN4_FAST, ZEN5_FAST)):
        findings = reference.answer(there, collect.collect([here])[0], collect.collect([there])[0])
        (table,) = (table for table in findings.tables if table.title.startswith("transformer"))
        rows = [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]
        verdicts = [row["verdict"] for row in rows if row["ranks"] == 1]
        counts.append(f"{verdicts.count(reference.DIFFERS)} of {len(verdicts)}")
    page = " ".join((ZEN4_DEFAULT.parents[1] / "README.md").read_text().split())
    as_installed, fast = counts
    assert (
        f"As installed, {as_installed} ratios on the Transformer at 1 rank differ from those on Zen 5, and with MKL's fast kernels {fast}."
        in page
    )


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
        f"Against {folder.name}: nothing to judge, since no workload and size has two backends in both."
        for folder in (TWO_CORES, ZEN4_DEFAULT, ZEN5_DEFAULT)
    ]
    with pytest.raises(UserError, match="trained different things"):
        reference.section(typed([made(num_ranks=2)]))
