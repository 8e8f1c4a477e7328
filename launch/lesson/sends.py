"""What each strategy of sharing a training sends: one epoch with each, and the bytes that a rank sends in a step beside the formula.

python -m launch.lesson.sends [RANKS] [OPTIONS OF launch/matrix.sh], such as 4 --backends ddp,fsdp --workloads transformer
"""

from collections.abc import Iterable

from common.cost import sharing, volumes
from common.declarations import BASELINE
from common.record.definition import Record
from common.terminal import Table, filled, print_tables
from launch.lesson import running


def table_of(records: Iterable[Record]) -> list[Table]:
    """Makes a table of what each run sends, with the backends in the order of their bytes."""

    def in_mb(num_bytes: float | None) -> float | None:
        return None if num_bytes is None else num_bytes / volumes.MB

    rows = [
        {
            "workload": record.workload,
            "backend": record.backend,
            "ranks": record.num_ranks,
            "sent per step (MB)": in_mb(volumes.sent_bytes(record)),
            "by formula (MB)": in_mb(volumes.expected_sent_bytes(record)),
            "by collective (MB)": volumes.describe_collectives(record),
        }
        for record in sorted(records, key=lambda record: (record.workload, volumes.sent_bytes(record) or 0.0))
    ]
    return filled("", rows)


def main() -> None:
    """Runs the lesson."""
    backends = ",".join(backend for backend in sharing.backends_and_variants() if backend != BASELINE)
    completed = running.matrix("sends", "2", "--backends", backends, "--workloads", "cnn", "--epochs", "1", "--no-stop-at-target")
    of_backend = {record.backend: sharing.of(record.backend) for record in completed}
    lines = [f"{backend}: {shared.formula}" for backend, shared in of_backend.items() if shared]
    print_tables(table_of(completed), ["by formula, of n ranks, r replicas and P bytes of parameters:", *lines])


if __name__ == "__main__":
    main()
