"""The order of the questions, and warnings about records that may not be comparable."""

import pytest

from launch.report.answer import short_names
from launch.report.reliability import OTHER_SEEDS
from tests.support.answers import answered, keys
from tests.support.made_records import made, repeats


def test_the_questions_are_in_order():
    assert keys([made()]) == ["first", "reliability", "scaling", "cost", "same", "failed"]


def test_a_comparison_is_named_by_its_model_with_the_sizes_that_were_given_its_precision_and_its_scaling():
    (comparison,) = answered([made(workload="transformer", settings={"layers": 3, "precision": "bf16"})]).runs.comparisons
    assert comparison.name == "transformer --layers 3 in bf16, weak scaling"
    assert short_names([comparison]) == {comparison.name: "transformer --layers 3"}


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
