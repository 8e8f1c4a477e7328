"""What the command lines of all programs have in common: numbers with bounds, which are checked where they are parsed."""

import math
from typing import get_args

import pytest

from common.bounds import Bounds
from common.command_line import options_of, parse
from launch import compare
from launch.memory import Memory
from launch.run.options import Matrix
from tests.support import programs
from tests.support.mistakes import refusal


@pytest.mark.parametrize("program", programs.programs(), ids=programs.name_of)
def test_every_number_has_a_lower_and_an_upper_bound(program):
    for option in options_of(program.kind):
        is_number = {int, float} & {option.kind, *get_args(option.kind)}
        bounds = [bounds for bounds in option.declared if isinstance(bounds, Bounds)]
        assert len(bounds) == bool(is_number), option.name
        for limits in bounds:
            assert limits.problem(10**400), option.name
            assert limits.problem(-(10**400)), option.name
            assert limits.problem(math.inf), option.name
            assert limits.problem(math.nan), option.name


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Matrix, ["--time-limit", "nan"], "--time-limit is nan; it must be above 0 and at most 1000000000"),
        (Matrix, ["--seed", "-1"], "--seed is -1; it must be at least 0 and at most 4294967295"),
        (Matrix, ["--machine", "../up"], "--machine is '../up'; use letters, digits, '.', '_' and '-'"),
        (Memory, ["--ranks", "0"], "--ranks is 0; it must be at least 1 and at most 16777216"),
        (compare.Arguments, [""], "an argument is empty; give a value, or leave it out"),
        (compare.Arguments, ["results", "--csv="], "--csv is empty; give a value, or leave it out"),
        (Matrix, ["2", "--data-dir", "", "--dry-run"], "--data-dir is empty; give a value, or leave it out"),
    ],
)
def test_a_value_out_of_bounds_and_an_empty_text_are_refused_in_one_line(kind, arguments, message):
    assert refusal(parse, kind, "it", "", arguments) == message


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--launcher-args", ""], ""), (["--launcher-args", "--exclusive"], "--exclusive"), (["--launcher-args=-x"], "-x")],
)
def test_arguments_of_the_launcher_may_begin_with_a_dash_or_be_none(arguments, text):
    assert parse(Matrix, "it", "", ["2", *arguments, "--dry-run"]).launcher_args == text
