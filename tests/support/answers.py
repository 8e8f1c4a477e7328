"""Reading the sections, sentences and rows of a report."""

from launch.report.report import report_of
from tests.support.made_records import typed


def answered(made_records, damaged=()):
    """The report on records as JSON objects."""
    return report_of(typed(made_records), damaged)


def keys(made_records):
    """The keys of the sections, in order."""
    return [section.key for section in answered(made_records).sections]


def section(made_records, key):
    return next(section for section in answered(made_records).sections if section.key == key)


def lines(made_records, key, table=0):
    """The rows of one table of a section."""
    return section(made_records, key).tables[table].rows


def line(made_records, key, table=0, **values):
    """The only row with these values."""
    (row,) = (row for row in lines(made_records, key, table) if all(row[name] == value for name, value in values.items()))
    return row
