"""Reading the sections, sentences and rows of a report."""

from launch.report import summary
from tests.support.made_records import typed


def answered(found, damaged=()):
    """The answer of records as JSON objects."""
    return summary.answer(typed(found), damaged)


def section(found, key, damaged=()):
    return next(section for section in answered(found, damaged).sections if section.key == key)


def lines(found, key, table=0):
    """The rows of one table of a section, as dicts."""
    chosen = section(found, key).tables[table]
    return [dict(zip([column.name for column in chosen.columns], row, strict=True)) for row in chosen.rows]


def line(found, key, table=0, **wanted):
    """The one row with these values."""
    (one,) = (row for row in lines(found, key, table) if all(row[name] == value for name, value in wanted.items()))
    return one
