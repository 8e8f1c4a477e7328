"""Every program of the project with the dataclasses of its options, as each hands them to common.command_line when it is started."""

import dataclasses
import functools
import runpy
import sys
import warnings
from typing import NamedTuple, get_args

import pytest

from common import command_line
from common.config import Settings
from tests.support.running import ROOT


class Program(NamedTuple):
    """A program: its module, its function that takes the options, and the dataclass of the options, of each subcommand one."""

    module: str
    run: object
    kind: object

    @property
    def kinds(self):
        """{arguments that select the subcommand: the dataclass of its options}."""
        if dataclasses.is_dataclass(self.kind):
            return {(): self.kind}
        return {(kind.__name__.lower(),): kind for kind in get_args(self.kind)}


@functools.cache
def programs():
    """The Programs that stand in launch/, and one backend, as all backends have the same options."""
    found = [Program("frameworks.single", None, Settings)]
    for path in sorted((ROOT / "launch").rglob("*.py")):
        if "command_line.main(" not in path.read_text():
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(command_line, "main", lambda run, kind, *_, module=module: found.append(Program(module, run, kind)))
            patch.setattr(sys, "argv", [module])
            runpy.run_module(module, run_name="__main__")
    return tuple(found)


def kinds():
    """(program, dataclass of options), of each subcommand one."""
    return [(program, kind) for program in programs() for kind in program.kinds.values()]


def kind_name(value):
    return value.module if isinstance(value, Program) else value.__name__
