"""The answer as Markdown, with GitHub's tables: one table per comparison, with a row for each entry."""

from launch.report.tables import BACKEND, RANKS, Table
from launch.report.words import printable

# The section whose tables take the brief columns of the tables with the same titles in the sections MERGED.
MAIN = "first"
MERGED = ("scaling", "cost", "step")
ALL_COLUMNS = "Every column: `python -m launch.compare FOLDER`, with `--html FILE` as a page, with `--csv FILE` by run."


def text(answer):
    """The whole answer. Of the sections in MERGED, columns that are not brief are left out of the tables that MAIN takes up."""
    lines = [f"# Tandem on {escaped(answer.machine)}", "", *_list(answer.headline)]
    for section in answer.sections:
        lines += ["", f"## {section.question}", "", *_list(section.sentences)]
        for table in tables(answer, section):
            lines += ["", f"### {escaped(table.title)}", "", *_table(table)]
        if section.key == MAIN:
            lines += ["", ALL_COLUMNS]
    if answer.notes:
        lines += ["", "## Notes", "", *_list(answer.notes)]
    return "\n".join(lines) + "\n"


def tables(answer, section):
    """The tables that this document has of a section."""
    if section.key in MERGED:
        titles = [table.title for other in answer.sections if other.key == MAIN for table in other.tables]
        return [table for table in section.tables if table.title not in titles]
    if section.key != MAIN:
        return section.tables
    others = [table for other in answer.sections if other.key in MERGED for table in other.tables]
    return [_merged(table, [other for other in others if other.title == table.title]) for table in section.tables]


def _merged(table, others):
    """A table with the brief columns of others, matched by backend and ranks."""
    columns, rows = list(table.columns), [list(row) for row in table.rows]
    keys = _keys(table)
    for other in others:
        values = dict(zip(_keys(other), other.rows, strict=True))
        for index, column in enumerate(other.columns):
            if column.brief:
                columns.append(column)
                for key, row in zip(keys, rows, strict=True):
                    row.append(values[key][index] if key in values else None)
    return Table(table.title, tuple(columns), [tuple(row) for row in rows])


def _keys(table):
    """(backend, ranks) of each row."""
    backend, ranks = table.columns.index(BACKEND), table.columns.index(RANKS)
    return [(row[backend], row[ranks]) for row in table.rows]


def _list(sentences):
    return [f"- {escaped(sentence)}" for sentence in sentences]


def _table(table):
    rule = ["---:" if any(isinstance(row[index], (int, float)) for row in table.rows) else "---" for index in range(len(table.columns))]
    names = [column.name for column in table.columns]
    return [_line(names), _line(rule), *map(_line, table.texts)]


def _line(cells):
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(cell):
    """A text escaped for one line of Markdown."""
    for mark in "\\|<>*_`[]!&~":
        cell = cell.replace(mark, f"\\{mark}")
    return " ".join(printable(cell).split())
