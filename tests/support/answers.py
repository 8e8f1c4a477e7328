"""Reading the sections, sentences and rows of a report."""

from launch.report import summary
from launch.report.export import charts, html
from launch.report.glance import answer as glance
from tests.support.made_records import typed


def answered(made_records, damaged=()):
    """The answer of records as JSON objects."""
    return summary.answer(typed(made_records), damaged)


def drawn(answer):
    """The charts of an answer, by section."""
    return charts.of(answer, glance.answer(answer))


def page(answer):
    """The text of the page of an answer."""
    return html.text(answer, glance.answer(answer))


def picture(answer):
    """The picture of an answer."""
    return charts.picture(answer, glance.answer(answer))


def keys(made_records):
    """The keys of the sections, in order."""
    return [section.key for section in answered(made_records).sections]


def section(made_records, key):
    return next(section for section in answered(made_records).sections if section.key == key)


def lines(made_records, key, table=0):
    """The rows of one table of a section, as dicts."""
    chosen = section(made_records, key).tables[table]
    return [dict(zip([column.name for column in chosen.columns], row, strict=True)) for row in chosen.rows]


def line(made_records, key, table=0, **values):
    """The only row with these values."""
    (row,) = (row for row in lines(made_records, key, table) if all(row[name] == value for name, value in values.items()))
    return row
