"""What each way of sharing a training sends: one epoch with each, and the bytes that a rank sends in a step beside the formula.

python -m launch.lesson.sends [RANKS] [OPTIONS OF launch/matrix.sh], such as 4 --backends ddp,fsdp --workloads transformer
"""

from common.cost import sharing
from common.declarations import BASELINE
from common.terminal import Table, print_tables
from launch.lesson import running
from launch.report import entries, environments
from launch.report.questions import choice

COLUMNS = ("backend", "ranks", "sent per step (MB)", "by formula (MB)", "by collective (MB)")


def table_of(table: Table) -> Table:
    """Selects the columns of the report's table on what is sent, and sorts the backends by bytes."""
    rows = sorted(table.rows, key=lambda row: sent if isinstance(sent := row[COLUMNS[2]], float) else 0.0)
    return table._replace(rows=[{heading: row[heading] for heading in COLUMNS} for row in rows])


def main() -> None:
    """Runs the lesson."""
    ways = ",".join(way for way in sharing.every_way() if way != BASELINE)
    completed = running.matrix("sends", "2", "--backends", ways, "--workloads", "cnn", "--epochs", "1", "--no-stop-at-target")
    limit_of = environments.limits_of(completed)
    tables = [table_of(table) for comparison in entries.comparisons(completed) for table in choice.tables(comparison, limit_of)]
    formulas = {record.backend: way.formula for record in completed if (way := sharing.of(record.backend))}
    lines = [f"{backend}: {formula}" for backend, formula in formulas.items()]
    print_tables(tables, ["by formula, of n ranks, r replicas and P bytes of parameters:", *lines])


if __name__ == "__main__":
    main()
