"""What the command lines of all programs have in common: numbers with bounds, which are checked where they are parsed."""

import math
from typing import get_args

import pytest

from common.bounds import Bounds
from common.command_line import options_of, parse
from common.errors import UserError
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
        (Matrix, ["--time-limit", "0"], "--time-limit is 0; it must be above 0 and at most 1000000000"),
        (Matrix, ["--machine", "../up"], "--machine is '../up'; use letters, digits, '.', '_' and '-'"),
        (Memory, ["--ranks", "0"], "--ranks is 0; it must be at least 1 and at most 16777216"),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_one_line(kind, arguments, message):
    with pytest.raises(UserError) as raised:
        parse(kind, "it", "", arguments)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("kind", "arguments", "name"),
    [
        (compare.Arguments, [""], "an argument"),
        (compare.Arguments, ["results", "--csv="], "--csv"),
        (Matrix, ["2", "--data-dir", "", "--dry-run"], "--data-dir"),
        (Matrix, ["", "2"], "an argument"),
    ],
)
def test_an_empty_text_is_refused(kind, arguments, name):
    assert refusal(parse, kind, "it", "", arguments) == f"{name} is empty; give a value, or leave it out"


def test_a_text_whose_default_is_empty_may_be_empty():
    options = parse(Matrix, "it", "", ["--launcher-args", ""])
    assert options.launcher_args == ""


@pytest.mark.parametrize("arguments", [["--launcher-args", "--exclusive"], ["--launcher-args=--exclusive"]])
def test_arguments_of_the_launcher_may_begin_with_a_dash(arguments):
    assert parse(Matrix, "it", "", ["2", *arguments, "--dry-run"]).launcher_args == "--exclusive"
