"""The order of the questions, and the notes."""

import pytest

from launch.report.answer import short_names
from launch.report.reliability import OTHER_SEEDS
from tests.support.answers import answered, keys
from tests.support.made_records import made, repeats

TOO_FEW = "Entries with fewer than 3 runs have no interval; use --repeats 6."


def test_the_questions_are_in_order():
    assert keys([made()]) == ["first", "reliability", "scaling", "cost", "same", "failed"]


def test_a_comparison_is_named_by_its_model_with_the_sizes_that_were_given_its_precision_and_its_scaling():
    (comparison,) = answered([made(workload="transformer", settings={"layers": 3, "precision": "bf16"})]).runs.comparisons
    assert comparison.name == "transformer --layers 3 in bf16, weak scaling"
    assert short_names([comparison]) == {comparison.name: "transformer --layers 3"}


@pytest.mark.parametrize(("nums_runs", "notes"), [([1], [TOO_FEW]), ([2], [TOO_FEW]), ([3], []), ([3, 1, 4], [TOO_FEW])])
def test_the_notes_name_too_few_repeats_for_an_interval(nums_runs, notes):
    records = [run for size, num_runs in enumerate(nums_runs, 1) for run in repeats([10.0] * num_runs, num_ranks=size)]
    assert answered(records).notes == notes


def test_the_notes_give_the_protocol_and_the_commit_of_each_of_several_matrices():
    first = [run for size in (1, 2) for run in repeats([10.0] * 6, num_ranks=size)]
    later = {"stamp": "20260102-000000", "started_at": "2026-01-02T00:00:00Z"}
    second = [made(backend=backend, repeat=repeat, seed=7 + repeat, **later) for backend in ("ddp", "single") for repeat in (1, 0)]
    for record in second:
        record["environment"] = record["environment"] | {"git_commit": "1" * 40}
    assert [note for note in answered([*second, *first]).notes if note.startswith("Matrix")] == [
        "Matrix begun at 2026-01-01T00:00:00Z (seeds 1 to 6): commit 00000000, 1 and 2 ranks of ddp, 6 runs each.",
        "Matrix begun at 2026-01-02T00:00:00Z (seeds 7 to 8): commit 11111111, 1 rank of ddp and single, 2 runs each.",
    ]
    assert not any(note.startswith("Matrix") for note in answered(first).notes)
    # Those of other seeds that ran the same have one sentence.
    third = [run | {"seed": 13 + run["repeat"]} for size in (1, 2) for run in repeats([10.0] * 6, num_ranks=size, stamp="20260103-000000")]
    assert [note for note in answered([*first, *third]).notes if note.startswith("Matri")] == [
        "Matrices begun at 2026-01-01T00:00:00Z (seeds 1 to 6) and 2026-01-01T00:00:00Z (seeds 13 to 18): "
        "commit 00000000, 1 and 2 ranks of ddp, 6 runs each."
    ]


@pytest.mark.parametrize(("seed", "is_noted"), [(6, False), (7, True)])
def test_different_seeds_of_the_backends_of_a_size_are_warned_of(seed, is_noted):
    records = [*repeats([10.0] * 6), *repeats([10.0] * 5, backend="single"), made(backend="single", repeat=5, seed=seed)]
    expected = f"cnn, weak scaling, 1 rank: {OTHER_SEEDS}"
    assert answered(records).answer.reliability[1:] == [expected] * is_noted


SIDE_BY_SIDE = "turns: one after the other, side by side"


@pytest.mark.parametrize(
    ("environment", "changes", "differences"),
    [
        (
            {"packages": {"torch": "2.14.0"}, "git_commit": "1" * 40, "mpi": "MPICH  4.3", "num_cores": 64},
            {"launcher": "torchrun"},
            ["launcher: mpich, torchrun", "commit: 00000000, 11111111", "cores: 4, 64", "torch: 2.13.0, 2.14.0"],
        ),
        ({}, {"num_turns": 3}, []),
        # One library beside none is no difference.
        ({"mpi": "MPICH  4.3"}, {}, []),
        ({}, {"num_turns": 0}, [SIDE_BY_SIDE]),
    ],
)
def test_differences_of_the_environment_and_the_launch_are_warned_of(environment, changes, differences):
    records = [made(num_ranks=1), made(num_ranks=2, num_turns=4), made(num_ranks=3, **changes)]
    records[2]["environment"] = records[2]["environment"] | environment
    assert answered(records).answer.reliability[1:] == [f"cnn, weak scaling: records differ in {difference}." for difference in differences]
