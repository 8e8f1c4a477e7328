"""Whatever an option of a program is given, the program does it or says in a line or two why not: no traceback, and it ends."""

import dataclasses
import importlib
import os
import shutil
import subprocess

import hypothesis
import pytest
from hypothesis import strategies

from common.bounds import Bounds
from common.command_line import Positional, flag, options_of
from common.config import Settings
from common.data import stored
from common.errors import UserError
from common.training import program as training
from launch.run import available, processes
from tests.support import programs
from tests.support.forked import run_module
from tests.support.running import ROOT

SECONDS = 60
RECORDS = [next((ROOT / "results" / "reference" / "two-cores").glob(f"*-cnn-ddp-n{size}-*")) for size in (1, 2)]
# Options without which a program would take longer, or write elsewhere, than a test may; one of several. PATH is a folder of the test.
ALWAYS = {
    "frameworks.single": [("--results", "PATH/results")],
    "launch.matrix": [("--backends", "single", "--results", "PATH/results", "--dry-run")],
    "launch.memory": [("--workload", "cnn", "--backends", "ddp,fsdp"), ("--layers", "2", "--backends", "ddp")],
    "launch.trace.build": [("--library", "PATH/library.so")],
}
LATE = {"launch.memory": ["frameworks.shared.pytorch.activations"], "launch.compare": ["launch.report.export.html"]}
# What is given for a positional argument without a default, where another one is tried.
POSITIONAL = {"workload": "cnn", "data_format": "npy", "folder": "PATH/new"}
NUMBERS = (
    "0", "-1", "1", "1.5", "1e-300", "1e308", "nan", "-inf", "1_000", "0x10", "1e9", "1" + "0" * 18, "1" + "0" * 30, "9" * 400,
    "9" * 5000,
)  # fmt: skip
TEXTS = (
    "", " ", "-", "--", "a,b,,", ",", "\n", "\x1b[31m", "\u00e9\u2028", "\udcff", "a" * 300, "a" * 5000,
    "{", "[", "(?<", "%s{0}", "$(x)", "'", "a=b", "1,2", "80GB", "9" * 24 + "GB", "0B", "ddp@x", "@",
)  # fmt: skip
PATHS = (
    "PATH", "PATH/there", "PATH/none/of/it", "PATH/file", "PATH/file/below", "PATH/binary", "PATH/loop", "PATH/records", "PATH/broken.json",
    "PATH/broken.toml", "PATH/folder.json", "PATH/picture.svg", "/dev/null", "/dev/full", "..", "PATH/" + "a" * 300, "PATH/a\nb",
)  # fmt: skip
VALUES = (
    strategies.sampled_from((*NUMBERS, *TEXTS, *PATHS))
    | strategies.integers().map(str)
    | strategies.floats().map(repr)
    | strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=40)
)


class Started(UserError):
    """What a program would do next is not what is tested here."""


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "a" / "b"
    (folder / "there").mkdir(parents=True)
    (folder / "folder.json").mkdir()
    (folder / "loop").symlink_to("loop")
    contents = {"file": b"text\n", "binary": bytes(range(256)), "broken.json": b'{"fits": 5}', "broken.toml": b"a = \xff"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "records").mkdir()
    for record in RECORDS:
        shutil.copy(record, folder / "records")
    return folder


def arguments_of(kind, option, value):
    """The arguments with which an option has the value, and each positional argument one."""
    positional, named = [], []
    for candidate in options_of(kind):
        if Positional in candidate.declared:
            if candidate.name == option.name:
                positional.append(value)
            elif candidate.default is dataclasses.MISSING:
                positional.append(POSITIONAL.get(candidate.name, "PATH/records"))
        elif candidate.name == option.name:
            named.append(flag(option.name) if option.kind is bool else f"{flag(option.name)}={value}")
    return [*positional, *named]


# A forecast of the most layers takes as long as all other programs together.
PROGRAMS = [
    pytest.param(program, marks=[pytest.mark.matrix] if program.module == "launch.memory" else []) for program in programs.programs()
]


@pytest.mark.parametrize("program", PROGRAMS, ids=programs.name_of)
def test_whatever_is_given_is_done_or_refused_in_a_line(program, place, monkeypatch):
    def started(*_, **__):
        raise Started("it has started")

    # What a program imports late takes seconds, and each fork would import it anew.
    for module in LATE.get(program.module, ()):
        importlib.import_module(module)
    # Asking backends takes seconds.
    monkeypatch.setattr(available, "runnable", lambda jobs, _: jobs)
    for module, name in ((training, "prepare_process"), (processes, "run"), (stored, "write")):
        monkeypatch.setattr(module, name, started)
    if program.module == "launch.trace.build":
        # It is the compiler.
        monkeypatch.setattr(subprocess, "run", started)
    bases, options = ALWAYS.get(program.module, [()]), options_of(program.kind)

    def check(base, option, value):
        words = [*base, *arguments_of(program.kind, option, value)]
        arguments = [word.replace("PATH", str(place)) for word in words]
        status, _, error = run_module(program.module, *arguments, folder=place, seconds=SECONDS)
        shown = f"{' '.join(arguments)!r}: {status}, {error}"
        assert status in (0, 2), shown
        assert error.count("\n") <= 2, shown
        assert "Traceback" not in error, shown

    # The largest number that an option takes must end in time too. A matrix has those of a run.
    for option in set(options) - (set() if program.kind is Settings else set(options_of(Settings))):
        for bounds in filter(lambda declared: isinstance(declared, Bounds), option.declared):
            check(bases[-1], option, str(bounds.at_most or bounds.below))
    num = (len(options) // 16 + 4) * int(os.environ.get("EXAMPLES", "1"))
    settings = hypothesis.settings(max_examples=num, derandomize=True, database=None)
    settings(hypothesis.given(strategies.sampled_from(bases), strategies.sampled_from(options), VALUES)(check))()
