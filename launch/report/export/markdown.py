"""The answer as Markdown, with GitHub's tables: every sentence, and of the tables those that a reader of a text can take in."""

from collections.abc import Iterable, Sequence

from common.errors import printable
from common.terminal import Cell, Column, Table
from launch.report.summary import Answer
from launch.report.tables import BACKEND, RANKS, Section

# The section whose tables take the brief columns of the tables with the same titles in the sections MERGED. Other tables of MERGED
# stand here only if they have brief columns of their own.
MAIN = "first"
MERGED = ("scaling", "cost", "step")
# The sections whose sentences stand here without their tables, which have a row for each run, digest or pair, or repeat the sentences.
SENTENCES_ONLY = ("same", "leaving")
# The section of whose tables those with this ending stand here: the parts of the differences at the largest size, with their brief columns.
PARTS, PARTS_TITLE = "difference", "parts"
ALL_TABLES = (
    "`python -m launch.compare FOLDER` prints every table and column, `--html FILE` makes a page of them, `--csv FILE` has every run."
)


def text(answer: Answer) -> str:
    """Returns the whole answer. The tables of MAIN and MERGED have their brief columns only."""
    lines = [f"# Tandem on {escaped(answer.machine)}", "", ALL_TABLES, "", *_list(answer.headline)]
    for section in answer.sections:
        lines += ["", f"## {section.question}", "", *_list(section.sentences)]
        for table in tables(answer, section):
            lines += ["", f"### {escaped(table.title)}", "", *_table(table)]
    if answer.notes:
        lines += ["", "## Notes", "", *_list(answer.notes)]
    return "\n".join(lines) + "\n"


def tables(answer: Answer, section: Section) -> list[Table]:
    """Returns the tables of a section that this document has. Oversubscribed entries have one table, that of MAIN with its own columns."""
    if section.key in SENTENCES_ONLY:
        return []
    if section.key == PARTS:
        return [_at_largest_size(_brief(table)) for table in section.tables if table.title.endswith(PARTS_TITLE)]
    if section.key in MERGED:
        main_titles = [table.title for main in answer.sections if main.key == MAIN for table in main.tables]
        further_tables = [table for table in section.tables if table.title not in main_titles and not table.oversubscribed]
        return [_merged(table, []) for table in further_tables if _brief_names(table) - {RANKS.name, BACKEND.name}]
    if section.key != MAIN:
        return section.tables
    details = [table for merged in answer.sections if merged.key in MERGED for table in merged.tables if not table.oversubscribed]
    return [_merged(table, [detail for detail in details if detail.title == table.title]) for table in section.tables]


def _merged(table: Table, details: Sequence[Table]) -> Table:
    """Returns the brief columns of a table and of the tables `details`, each name once, with rows matched by backend and ranks."""
    columns: dict[str, Column] = {}
    cells: dict[str, dict[tuple[Cell, Cell], Cell]] = {}
    for detail in (table, *details):
        for column, values in zip(detail.columns, zip(*detail.rows, strict=True), strict=True):
            if column.brief and column.name not in columns:
                columns[column.name] = column
                cells[column.name] = dict(zip(_keys(detail), values, strict=True))
    return Table(table.title, tuple(columns.values()), [tuple(cells[name].get(key) for name in columns) for key in _keys(table)])


def _brief(table: Table) -> Table:
    """Returns a table with its brief columns."""
    indices = [index for index, column in enumerate(table.columns) if column.brief]
    rows = [tuple(row[index] for index in indices) for row in table.rows]
    return Table(table.title, [table.columns[index] for index in indices], rows)


def _at_largest_size(table: Table) -> Table:
    """Returns the rows of a table with the most ranks, which its first column has."""
    largest = max(row[0] for row in table.rows if isinstance(row[0], int))
    return table._replace(rows=[row for row in table.rows if row[0] == largest])


def _brief_names(table: Table) -> set[str]:
    return {column.name for column in table.columns if column.brief}


def _keys(table: Table) -> list[tuple[Cell, Cell]]:
    """Returns the backend and ranks of each row."""
    names = [column.name for column in table.columns]
    backend, ranks = names.index(BACKEND.name), names.index(RANKS.name)
    return [(row[backend], row[ranks]) for row in table.rows]


def _list(sentences: Iterable[str]) -> list[str]:
    return [f"- {escaped(sentence)}" for sentence in sentences]


def _table(table: Table) -> list[str]:
    numeric = table.numeric_columns
    rule = "".join("|---:" if index in numeric else "|---" for index in range(len(table.columns)))
    return [_line([column.name for column in table.columns]), f"{rule}|", *map(_line, table.texts)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(cell: str) -> str:
    """Returns a text escaped for one line of Markdown."""
    for mark in "\\|<>*_`[]!&~":
        cell = cell.replace(mark, f"\\{mark}")
    return " ".join(printable(cell).split())
