"""All measurements as CSV: the flat table, one line per run, without averaging."""

import polars
import polars.selectors
from polars import DataFrame, Expr

from launch.report.report import Report
from launch.report.table import table

# A formula of a spreadsheet begins with one of these.
FORMULA = r"^[=+\-@\t\n]"


def text(report: Report) -> str:
    """Returns the table of the runs of the report, by comparison, backend, size and repeat; unknown values are empty."""
    return written(table(report.runs))


def written(runs: DataFrame) -> str:
    """Returns a table as CSV; the values of a list are in one cell, separated by spaces, with a dash for one that is not known.

    A text that a spreadsheet would take for a formula begins with a quote (OWASP, CSV injection).
    """
    texts = [name for name, kind in runs.schema.items() if kind in (polars.String, polars.List(polars.String))]
    element = polars.element().cast(polars.String).fill_null("-")
    flat = runs.with_columns(polars.selectors.list().list.eval(element).list.join(" "))
    return flat.with_columns(_harmless(polars.col(name)).alias(name) for name in texts).write_csv()


def _harmless(texts: Expr) -> Expr:
    """Returns texts that are no formulas, with no carriage return, which ends a line for some readers."""
    plain = texts.str.replace_all("\r", "\n", literal=True)
    return polars.when(plain.str.contains(FORMULA)).then("'" + plain).otherwise(plain)
