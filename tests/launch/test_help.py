"""The help of a run and of a matrix, as they print it: each has the options that its reader can give, in sections."""

import dataclasses
import re

import pytest

from common import backends, config, workloads
from common.command_line import flag
from common.config import Settings
from common.declarations import own_settings
from tests.support.forked import run_module
from tests.support.running import BIN, completed

SECTION = re.compile(r"^(\S.*):\n((?:  .*\n)+)", re.MULTILINE)
OPTION = re.compile(r"^  (\S.*\n(?:   .*\n)*)", re.MULTILINE)
FIELDS = [field.name for field in dataclasses.fields(Settings)]
OF_SINGLE = set(FIELDS) - config.not_for(config.SINGLE_RUN).keys() - own_settings().keys()


def sections_of(text):
    """Returns {title: {option: its help in one line}} of a help."""
    sections = {title: [" ".join(entry.split()) for entry in OPTION.findall(entries)] for title, entries in SECTION.findall(text)}
    return {title: {re.match(r"[\w-]*", entry)[0]: entry for entry in entries} for title, entries in sections.items()}


def help_of(module):
    status, printed, error = run_module(module, "--help", COLUMNS="100")
    assert (status, error) == (0, "")
    return sections_of(printed)


def options_in(sections):
    return [option for title, section in sections.items() if title.endswith("options") for option in section]


def test_each_option_is_in_the_help_of_those_programs_that_take_it():
    of_run, of_matrix = (options_in(help_of(module)) for module in ("frameworks.single", "launch.matrix"))
    assert sorted(of_run) == sorted(["-h", *map(flag, OF_SINGLE)])
    assert len(set(of_matrix)) == len(of_matrix)
    of_variants = backends.variant_settings()
    absent = {"workload", "run_id", "repeat", "control", "library_setting", "share_gpu"} | of_variants
    absent |= {"checkpoint_dir"}
    assert {flag(name) for name in FIELDS} - set(of_matrix) == {flag(name) for name in absent}
    assert {"--trace", "--launcher", "--print-jobs"} < set(of_matrix)


def test_a_run_has_the_settings_that_its_backend_declares():
    helps = help_of("frameworks.ddp")["backend options"]
    assert sorted(helps) == sorted(flag(setting.name) for setting in backends.declared()["ddp"].settings)
    assert "gradients are averaged in float16 or bfloat16" in helps["--reduction"]


def test_every_setting_of_a_run_is_explained_with_its_default():
    helps = {option: text for section in help_of("frameworks.single").values() for option, text in section.items()}
    cnn, transformer = (workloads.WORKLOADS[workload].defaults() for workload in ("cnn", "transformer"))
    of_workload = {name: f"cnn: {cnn[name]}; transformer: {transformer[name]}" for name in cnn}
    of_workload["learning_rate"] = "cnn: 0.004 for sgd, 0.001 for adam; transformer: 0.05 for sgd, 0.0015 for adam"
    for name in OF_SINGLE:
        description, _, default = helps[flag(name)].partition(" (default: ")
        assert description.endswith("."), f"{name} has no sentence of help"
        value = of_workload.get(name, getattr(Settings(), name))
        assert default == ("" if value in (None, "") else f"{value})"), name
        assert "None" not in helps[flag(name)], name


@pytest.mark.parametrize("arguments", [["--trace", "mpi"], ["--trace=None"]])
def test_a_run_refuses_a_setting_of_a_matrix_in_one_line(arguments):
    message = "error: --trace is for a matrix; trace a single run with LD_PRELOAD, see launch/trace/README.md\n"
    assert run_module("frameworks.single", *arguments) == (2, "", message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # It would not be the only one that the matrix trains.
        (["--workload", "cnn"], "--workload is for a single run; here use --workloads and --repeats"),
        (["--no-share-gpu"], "--share-gpu is for a single run, python -m frameworks.BACKEND; it is never compared"),
        (["--checkpoint-dir=a"], ", python -m frameworks.BACKEND; the runs of a matrix start from epoch 1"),
    ],
)
def test_a_matrix_refuses_a_setting_of_a_run_also_with_its_default(arguments, message):
    status, printed, error = run_module("launch.matrix", "1", *arguments)
    assert (status, printed, error.count("\n")) == (2, "", 1)
    assert error.endswith(f"{message}\n")


def test_an_option_that_a_program_does_not_take_may_be_a_value(tmp_path):
    launcher_args = ("--launcher-args", "--workload")
    status, printed, error = run_module("launch.matrix", "2", "--backends", "ddp", *launcher_args, "--dry-run", "--results", tmp_path)
    assert (status, " --workload " in printed) == (0, True), error


def test_a_help_whose_reader_has_ended_leaves_no_traceback():
    done = completed("bash", "-c", f"{BIN / 'python'} -m launch.matrix --help | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (1, "")
