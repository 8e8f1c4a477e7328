"""What the command lines of all programs have in common: numbers with bounds, which are checked where they are parsed."""

from typing import get_args, get_type_hints

import pytest

from common.command_line import Bounds, annotations, parse
from common.config import Settings
from common.errors import UserError
from launch.collectives.options import Collectives
from launch.conversion.writing import Conversion
from launch.lesson.data import Data
from launch.lesson.running import RunOptions
from launch.lesson.sends import Sends
from launch.lesson.warmup import Warmup
from launch.matrix import Matrix
from launch.memory import Memory

# Checked by launch/run/plan.py, since the sizes of a matrix are positional.
POSITIONAL = {"sizes"}


@pytest.mark.parametrize("kind", [Settings, Matrix, Collectives, Warmup, Sends, Data, RunOptions, Memory, Conversion])
def test_every_number_has_bounds(kind):
    numbers = {name for name, hint in get_type_hints(kind).items() if {int, float} & {hint, *get_args(hint)}} - POSITIONAL
    bounded = {name for name, declared in annotations(kind).items() if any(isinstance(allowed, Bounds) for allowed in declared)}
    assert numbers == bounded


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Matrix, ["--until", "0"], "--until is 0; it must be above 0 and below 100, such as 5"),
        (Matrix, ["--quiet-limit", "100"], "--quiet-limit is 100; it must be above 0 and below 100, such as 5"),
        (Matrix, ["--until", "nan"], "--until is nan; it must be above 0 and below 100, such as 5"),
        (Matrix, ["--seed", "-1"], "--seed is -1; it must be at least 0 and at most 4294967295"),
        (Collectives, ["--time-limit", "0"], "--time-limit is 0; it must be above 0"),
        (Collectives, ["--machine", "../up"], "--machine is '../up'; use letters, digits, '.', '_' and '-'"),
        (Data, ["--workers", "1", "-1"], "--workers is (1, -1); it must be at least 0"),
        (Memory, ["--params", "inf"], "--params is inf; it must be at least 1 and finite"),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_one_line(kind, arguments, message):
    with pytest.raises(UserError) as raised:
        parse(kind, "it", "", arguments)
    assert str(raised.value) == message


@pytest.mark.parametrize("arguments", [["--launcher-args", "--exclusive"], ["--launcher-args=--exclusive"]])
def test_arguments_of_the_launcher_may_begin_with_a_dash(arguments):
    assert parse(Matrix, "it", "", ["2", *arguments, "--dry-run"]).launcher_args == "--exclusive"
