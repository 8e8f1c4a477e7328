"""Machine files: parsing, errors, and their effect on the settings."""

import dataclasses

import pytest

from common.config import Settings
from common.errors import UserError
from launch.launchers import machine_files
from launch.launchers.commands import PYTHON
from launch.launchers.machine_files import Machine, applied, python_of, read
from tests.support.mistakes import refused
from tests.support.running import completed


@pytest.mark.parametrize("name", machine_files.names())
def test_every_machine_in_the_folder_can_be_read(name):
    assert isinstance(read(name), Machine)


def test_a_laptop_is_as_without_a_file():
    assert read("local") == Machine()
    assert applied(read("local"), Settings(seed=3)) == Settings(seed=3)


def test_the_command_line_overrides_the_machine_file():
    machine = Machine(threads=8, host_suffix="i", gpu_order="reversed")
    assert applied(machine, Settings()) == Settings(threads=8, host_suffix="i", gpu_order="reversed")
    assert applied(machine, Settings(threads=2, host_suffix=".ib")) == Settings(threads=2, host_suffix=".ib", gpu_order="reversed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lancher = "pals"', "unknown key 'lancher'"),
        ('launcher = "qrun"', "launcher is 'qrun'; choose from"),
        ("threads = 0", "threads is 0; it must be at least 1"),
        ("threads = true", "threads is True; it must be an integer"),
        ('gpu_order = "random"', "choose from: local, reversed"),
        ("[variables]\nA = 1", 'A = "1"'),
        ("threads", "is not valid TOML"),
        ('launcher_args = "--comment \\"a"', "mine.toml: launcher_args is '--comment \"a': no closing quotation"),
        ('launcher_args = ["--exclusive"]', "launcher_args is ['--exclusive']; it must be a string"),
        ("python = 3", "python is 3; it must be a string or a list, as in"),
        ("python = []", "python is []; it must be a path, or the words of a command"),
        ('python = ["env", 1]', "python is ['env', 1]; it must be a path, or the words of a command"),
    ],
)
def test_an_invalid_file_is_refused(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with refused(message):
        read(str(path))


@pytest.mark.parametrize("name", ["nowhere", "nowhere.toml"])
def test_the_error_for_an_unknown_machine_lists_the_known_ones(name):
    with pytest.raises(UserError, match="jsc, local, polaris"):
        read(name)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(), [*PYTHON, "x"]),
        (Machine(python="echo"), ["echo", "x"]),
        (Machine(python=["env", "A=b c", "echo"]), ["env", "A=b c", "echo", "x"]),
    ],
)
def test_the_ranks_python_is_a_path_or_a_command_behind_the_prologue(machine, expected):
    assert [*python_of(machine), "x"] == expected
    with_prologue = dataclasses.replace(machine, python=machine.python or "echo", prologue="export A='d e'  # of a module\n")
    assert completed(*python_of(with_prologue), "x $A").stdout == "x $A\n"
    printing = dataclasses.replace(with_prologue, python=["bash", "-c", 'echo "$A"'])
    assert completed(*python_of(printing)).stdout == "d e\n"
    failing = dataclasses.replace(printing, prologue="echo no such module >&2; false")
    assert (completed(*python_of(failing)).returncode, completed(*python_of(failing)).stdout) == (1, "")
