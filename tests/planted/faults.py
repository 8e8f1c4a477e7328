"""The planted faults: one-line changes that make Tandem wrong, each with the tests that have to catch it.

They are in the .toml files beside this one, one file for each area. `old` is a part of a line that the file has exactly once, `new`
stands in its place, `what` says what goes wrong for the user, and `tests` are node ids of pytest.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError

HERE = Path(__file__).resolve().parent


class Fault(NamedTuple):
    """One fault, as a [[fault]] of a .toml file has it."""

    name: str
    file: str
    what: str
    old: str
    new: str
    tests: list[str]


def load():
    """All faults, by area."""
    return [Fault(**entry) for path in sorted(HERE.glob("*.toml")) for entry in tomllib.loads(path.read_text())["fault"]]


def chosen(names):
    """The faults of these names; all of them for none. Raises UserError for a name that no fault has."""
    found = {fault.name: fault for fault in load()}
    for name in names:
        if name not in found:
            raise UserError(f"there is no planted fault {name!r}; see python -m tests.planted --list")
    return [found[name] for name in names or found]


def planted(fault, text):
    """The text of the fault's file with the fault in it. Raises UserError where `old` is not there once, or not one line changes."""
    count = text.count(fault.old)
    if count != 1:
        raise UserError(f"{fault.name} does not apply: {fault.file} has {fault.old!r} {count} times, not once")
    lines, changed = text.split("\n"), text.replace(fault.old, fault.new).split("\n")
    num_changed = sum(line != other for line, other in zip(lines, changed, strict=False))
    if len(lines) != len(changed) or num_changed != 1:
        raise UserError(f"{fault.name} does not apply: it changes other than one line of {fault.file}")
    return "\n".join(changed)
