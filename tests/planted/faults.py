"""The planted faults: one-line changes that make Tandem wrong, each with the tests that have to catch it.

They are in the .toml files beside this one, one file for each area. `old` is a part of a line that stands exactly once in the product,
`new` stands in its place, `what` says what goes wrong for the user, and `tests` are node ids of pytest. Files are found by the end of
their path, so that one that moves to another folder changes nothing here: those of the tests, and `file` where the line stands in several.
"""

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError
from tests.support.running import ROOT

HERE = Path(__file__).resolve().parent
PRODUCT = ("common", "frameworks", "launch")
SUFFIXES = {".py", ".c", ".h"}


class Fault(NamedTuple):
    """One fault, as a [[fault]] of a .toml file has it."""

    name: str
    what: str
    old: str
    new: str
    tests: list[str]
    file: str = "*"


def load():
    """All faults, by area."""
    return [Fault(**entry) for path in sorted(HERE.glob("*.toml")) for entry in tomllib.loads(path.read_text())["fault"]]


def chosen(names):
    """The faults of these names; all of them for none. Raises UserError for a name that no fault has."""
    by_name = {fault.name: fault for fault in load()}
    for name in names:
        if name not in by_name:
            raise UserError(f"there is no planted fault {name!r}; see python -m tests.planted --list")
    return [by_name[name] for name in names or by_name]


@functools.cache
def product():
    """{path from the root of the checkout: text} of the product's source files."""
    paths = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.*")) if path.suffix in SUFFIXES]
    return {path.relative_to(ROOT): path.read_text() for path in paths}


def place(fault, texts):
    """The path among {path: text} whose text has the fault's line. Raises UserError where not exactly one has it."""
    paths = [path for path, text in texts.items() if path.match(fault.file) and fault.old in text]
    if len(paths) != 1:
        places = f"stands in {', '.join(map(str, paths))}" if paths else f"is in no file {fault.file}"
        raise UserError(f"{fault.name} does not apply: {fault.old!r} {places}; it must be in one")
    return paths[0]


def planted(fault, text):
    """The text of the fault's file with the fault in it. Raises UserError where `old` is not there once, or not one line changes."""
    count = text.count(fault.old)
    if count != 1:
        raise UserError(f"{fault.name} does not apply: its file has {fault.old!r} {count} times, not once")
    lines, changed = text.split("\n"), text.replace(fault.old, fault.new).split("\n")
    num_changed = sum(line != changed_line for line, changed_line in zip(lines, changed, strict=False))
    if len(lines) != len(changed) or num_changed != 1:
        raise UserError(f"{fault.name} does not apply: it changes other than one line")
    return "\n".join(changed)


def node_ids(fault):
    """The tests that have to catch the fault, as pytest takes them. Raises UserError where a file is not there exactly once."""
    ids = []
    for test in fault.tests:
        name, colons, function = test.partition("::")
        paths = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob(name))]
        if len(paths) != 1:
            places = f"there are {', '.join(map(str, paths))}" if paths else "there is none"
            raise UserError(f"{fault.name} names {name}, and {places}; it must name one file by the end of its path")
        ids.append(f"{paths[0]}{colons}{function}")
    return ids
