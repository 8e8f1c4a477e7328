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
    """One fault, as a table of a .toml file has it."""

    name: str
    what: str
    old: str
    new: str
    tests: list[str]
    file: str = "*"


def load() -> list[Fault]:
    """Reads the faults of all areas, one .toml file each."""
    return [Fault(name, **entry) for path in sorted(HERE.glob("*.toml")) for name, entry in tomllib.loads(path.read_text()).items()]


@functools.cache
def product() -> dict[Path, str]:
    """Returns {path from the root of the checkout: text} of the product's source files."""
    paths = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.*")) if path.suffix in SUFFIXES]
    return {path.relative_to(ROOT): path.read_text() for path in paths}


def planted(fault: Fault, texts: dict[Path, str]) -> tuple[Path, str]:
    """Returns (path, its text with the fault in it), of {path: text}. Raises UserError unless `old` stands once and one line changes."""
    counts = {path: text.count(fault.old) for path, text in texts.items() if path.match(fault.file) and fault.old in text}
    if list(counts.values()) != [1]:
        places = ", ".join(f"{count} times in {path}" for path, count in counts.items()) or "nowhere"
        raise UserError(f"{fault.name} does not apply: {fault.old!r} must stand once in {fault.file}; it stands {places}")
    if "\n" in fault.old + fault.new or fault.old == fault.new:
        raise UserError(f"{fault.name} does not apply: it changes other than one line")
    (path,) = counts
    return path, texts[path].replace(fault.old, fault.new)


def node_ids(fault: Fault) -> list[str]:
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
