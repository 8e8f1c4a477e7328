"""The program of the lessons: each has options of its own, and a mistake stops it before anything has run."""

import pytest

from tests.support.forked import run_module
from tests.support.mistakes import expect_refused

LESSONS = "{warmup, sends, pipeline}"


@pytest.mark.parametrize(("lesson", "option", "of_others"), [("warmup", "--epochs", "--workload"), ("sends", "--workload", "--epochs")])
def test_each_lesson_has_its_own_help(lesson, option, of_others):
    status, output, _ = run_module("launch.lessons", lesson, "--help")
    assert (status, option in output, "--time-limit" in output, of_others in output) == (0, True, True, False)


def test_a_lesson_must_be_named_and_the_help_names_every_one():
    expect_refused(LESSONS, "launch.lessons")
    status, output, _ = run_module("launch.lessons", "--help")
    assert (status, LESSONS.replace(" ", "") in output) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "unknown argument: --results"),
        (["cooldown"], "cooldown"),
        (["warmup", "--ranks", "512"], "--last-batch drop leaves no step"),
        (["warmup", "--epochs", "0"], "--epochs is 0"),
        (["warmup", "--backend", "ddp,horovod_tf"], "--backend is ddp,horovod_tf; it must be one backend"),
        (["warmup", "--backend", "single"], "single trains in one process; give --ranks 1"),
        (["sends", "--ranks", "1"], "--ranks is 1; it must be at least 2, since one rank sends nothing"),
        (["sends", "--backends", "single"], "single trains in one process and sends nothing"),
        (["sends", "--backends", "nope"], "there is no backend 'nope'"),
        (["sends", "--backends", "ddp,ddp"], "ddp is given more than once"),
        (["sends", "--backends", "fsdp@hsdp", "--ranks", "3"], "a multiple of 2 ranks"),
        (["sends", "--workload", "nope"], "there is no workload 'nope'"),
    ],
)
def test_a_lesson_refuses(arguments, message, tmp_path):
    expect_refused(message, "launch.lessons", *arguments, "--results", tmp_path)
    assert list(tmp_path.iterdir()) == []
