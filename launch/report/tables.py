"""What the answer is made of: tables of values with their formats, and numbers in words. Pure."""

from typing import NamedTuple

MIB = 2**20


class Column(NamedTuple):
    """A column's heading, with its unit, and the format of its numbers."""

    name: str
    form: str = ""

    def text(self, value):
        """A value as text; what is not known is a dash."""
        if value is None:
            return "-"
        return format(value, self.form) if self.form and isinstance(value, float) else str(value)


class Table(NamedTuple):
    """Values are numbers, texts or None, one for each column."""

    title: str
    columns: tuple[Column, ...]
    rows: list[tuple]

    @property
    def texts(self):
        """The rows as texts."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]


class Section(NamedTuple):
    """A question and its answer; `key` names it for those who put more beside it."""

    key: str
    question: str
    sentences: list[str]
    tables: list[Table]


RANKS, BACKEND = Column("ranks"), Column("backend")
TIME, RATE, ACCURACY = Column("time to solution (s)", ".2f"), Column("samples/s", ".0f"), Column("accuracy", ".4f")
INTERVAL = Column("95 % interval")
# What is said of entries whose ranks shared cores, in a table of their own.
APART = "more ranks than cores: no measure of scaling"


def filled(title, columns, rows):
    """The table in a list, or no table where it has no rows."""
    return [Table(title, columns, rows)] if rows else []


def printable(text):
    """The text with a space for each character that has no shape of its own, such as those that steer a terminal."""
    return "".join(one if one.isprintable() else " " for one in text)


def listed(names):
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def interval(found):
    """The interval of a statistics.Ratio for a table; None where it has none."""
    return f"{found.low:.2f} to {found.high:.2f}" if found and found.low is not None else None


def runs_against(num_runs, num_others, paired):
    """How many runs stand against how many others, in words."""
    if num_runs != num_others:
        return f"{num_runs} {'run' if num_runs == 1 else 'runs'} against {num_others}"
    if num_runs == 1:
        return "one run each"
    return f"{num_runs} {'pairs' if paired else 'runs each'}"


def how_sure(found):
    """The interval of a statistics.Ratio, and what it is from, in words; the runs below come first, since it is they that are told of."""
    runs = runs_against(found.num_below, found.num_above, found.paired)
    return f"from {runs}" if found.low is None else f"95 % interval {interval(found)}, {runs}"


def times_as_fast(found, other):
    """A statistics.Ratio of another's time to one's own, in words: how sure it is stands beside how much it is."""
    if found.is_difference is False:
        return f"no difference shown from {other} ({found.value:.2f} times as fast, {how_sure(found)})"
    return f"{found.value:.2f} times as fast as {other} ({how_sure(found)})"


def span(values, form):
    """The least and the most of {name: number}, in words."""
    least, most = min(values, key=values.get), max(values, key=values.get)
    if least == most:
        return f"{form.format(values[least])} ({least})"
    return f"from {form.format(values[least])} ({least}) to {form.format(values[most])} ({most})"
