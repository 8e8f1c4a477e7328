"""Every program of the project with the dataclass of its options, as each hands it to common.command_line when it is started."""

import functools
import runpy
import sys
import warnings
from typing import NamedTuple

import pytest

from common import command_line
from common.config import Settings
from tests.support.running import ROOT


class Program(NamedTuple):
    """A program: its module, and the dataclass of its options."""

    module: str
    kind: type


@functools.cache
def programs() -> tuple[Program, ...]:
    """The Programs that stand in launch/, and one backend, as all backends have the same options."""
    all_programs = [Program("frameworks.single", Settings)]
    for path in sorted((ROOT / "launch").rglob("*.py")):
        if "command_line.main(" not in path.read_text():
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(command_line, "main", lambda run, kind, *_, module=module: all_programs.append(Program(module, kind)))
            patch.setattr(sys, "argv", [module])
            runpy.run_module(module, run_name="__main__")
    return tuple(all_programs)


def name_of(program: Program) -> str:
    return program.module
