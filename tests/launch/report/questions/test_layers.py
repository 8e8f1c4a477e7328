"""A framework's part, taken apart: the rows of layers and of runtime add up to the compute of a step, and what does not is said."""

import pytest

from launch.report import entries, live, summary
from launch.report.questions import layers
from launch.report.questions.layers import COMPUTE, REMAINING
from launch.report.tables import Findings
from tests.support.made_records import made, step_breakdown, typed


def record(backend, compute, milliseconds, repeat=0):
    """A record of a run at 1 rank with these milliseconds of compute in a step, and of layers forward and backward."""
    seconds = {
        kind: {"forward_seconds": forward / 1000, "backward_seconds": backward / 1000} for kind, (forward, backward) in milliseconds.items()
    }
    breakdown = step_breakdown(compute=compute, num_ranks=1)
    return made(backend, repeat=repeat, step_breakdown=breakdown | {"layers": seconds if milliseconds else None})


SINGLE = record("single", 10.0, {"dense": (2.0, 5.0), "norm": (1.0, 1.5), "optimizer": (0.5, 0.0)})
SINGLE_TF = record("single_tf", 6.0, {"dense": (1.0, 2.5), "norm": (1.0, 1.5), "optimizer": (0.5, 0.0)})


def answered(*made_records):
    (comparison,) = entries.comparisons(typed(made_records))
    return layers.answer(comparison)


def test_the_rows_are_the_kinds_and_what_remains_of_the_compute_of_a_step():
    (table,) = answered(SINGLE, SINGLE_TF).tables
    assert [column.name for column in table.columns[1:]] == [
        "single forward (ms)", "single backward (ms)", "single total (ms)", "single_tf forward (ms)", "single_tf backward (ms)",
        "single_tf total (ms)", "single_tf - single (ms)",
    ]  # fmt: skip
    assert table.texts == [
        ["dense", "2.000", "5.000", "7.000", "1.000", "2.500", "3.500", "-3.500"],
        ["norm", "1.000", "1.500", "2.500", "1.000", "1.500", "2.500", "+0.000"],
        ["optimizer", "0.500", "0.000", "0.500", "0.500", "0.000", "0.500", "+0.000"],
        [REMAINING, "-", "-", "0.000", "-", "-", "-0.500", "-0.500"],
        [COMPUTE, "-", "-", "10.000", "-", "-", "6.000", "-4.000"],
    ]


def test_a_sentence_says_of_what_the_difference_is():
    sentence, *_ = answered(SINGLE, SINGLE_TF).sentences
    assert sentence == (
        "cnn, weak scaling, 1 rank, compute of a step: single takes 1.67 times single_tf's, +4.00 ms, most in "
        f"dense +3.50 ms, {REMAINING} +0.50 ms and norm +0.00 ms."
    )


def test_every_slower_backend_has_a_sentence_and_a_column_of_differences():
    sentences, (table,), _ = answered(SINGLE, SINGLE_TF, record("single_keras", 6.6, {"dense": (1.0, 2.5), "norm": (1.0, 1.5)}))
    assert [sentence.split(": ")[1].split("'s")[0] for sentence in sentences] == [
        "single_keras takes 1.10 times single_tf", "single takes 1.67 times single_tf",
    ]  # fmt: skip
    assert [column.name for column in table.columns[-2:]] == ["single_keras - single (ms)", "single_tf - single (ms)"]


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (10.0, None),
        (11.0, None),
        (9.2, None),
        (12.0, "add up to 83 % of the compute of its step: 2.00 ms are runtime, or in no row."),
        (8.0, "add up to 125 % of the compute of its step: alone, operations are not fused"),
    ],
)
def test_layers_further_than_a_tenth_from_the_step_are_said_not_to_add_up_to_it(compute, words):
    sentences = answered(record("single", compute, {"dense": (2.0, 5.0), "norm": (1.0, 2.0)})).sentences
    assert [words in sentence for sentence in sentences] == ([True] if words else [])
    assert all(sentence.startswith("cnn, weak scaling, 1 rank, layers of single ") for sentence in sentences)


def test_one_framework_has_a_table_of_its_own_and_runs_without_layers_have_none():
    (table,) = answered(SINGLE).tables
    assert len(table.columns) == 4
    assert answered(record("single", 10.0, {}), record("single_tf", 8.0, {})) == Findings([], [])
    assert answered(record("single", 0.0, {"dense": (2.0, 5.0)})) == Findings([], [])
    # A repeat without layers counts in no number.
    assert answered(SINGLE, record("single", 100.0, {}, repeat=1)).tables[0].texts == table.texts


def test_they_follow_the_part_of_the_framework_and_a_matrix_prints_their_table(tmp_path, capsys):
    records = typed([SINGLE, SINGLE_TF])
    keys = [section.key for section in summary.answer(records).sections]
    assert keys[keys.index("difference") + 1] == "layers"
    live.conclude(tmp_path / "a.html", records, lambda _: [])
    assert "a step by kind of layer" in capsys.readouterr().out
