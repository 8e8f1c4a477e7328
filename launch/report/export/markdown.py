"""The answer as Markdown, with GitHub's tables."""

from launch.report.tables import printable


def text(answer):
    """The whole answer."""
    lines = [f"# Tandem on {escaped(answer.machine)}", "", *_list(answer.headline)]
    for section in answer.sections:
        lines += ["", f"## {section.question}", "", *_list(section.sentences)]
        for table in section.tables:
            lines += ["", f"### {escaped(table.title)}", "", *_table(table)]
    if answer.notes:
        lines += ["", "## To be known", "", *_list(answer.notes)]
    return "\n".join(lines) + "\n"


def _list(sentences):
    return [f"- {escaped(sentence)}" for sentence in sentences]


def _table(table):
    rule = ["---:" if any(isinstance(row[index], (int, float)) for row in table.rows) else "---" for index in range(len(table.columns))]
    names = [column.name for column in table.columns]
    return [_line(names), _line(rule), *map(_line, table.texts)]


def _line(cells):
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(cell):
    """A text as it stands in one line of Markdown."""
    for mark in "\\|<>*_`[]!&~":
        cell = cell.replace(mark, f"\\{mark}")
    return " ".join(printable(cell).split())
