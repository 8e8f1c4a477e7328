"""The parts of the answer: sections with sentences and tables, and units."""

from typing import NamedTuple

from common.terminal import Cell, Table

MIB, MB, MILLI = 2**20, 10**6, 1e-3
NOT_MEASURED = "not measured"

Cells = dict[str, Cell]


class Findings(NamedTuple):
    """What a question finds out."""

    sentences: list[str]
    tables: list[Table]


class Section(NamedTuple):
    """A question and its answer; `key` identifies the section in exports."""

    key: str
    question: str
    sentences: list[str]
    tables: list[Table]


def in_unit(value: float | None, unit: float) -> float | None:
    """Returns a value in a unit, such as MB; None where it is not known."""
    return None if value is None else value / unit
