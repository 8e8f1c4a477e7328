"""Whether verdicts tell apart backends that are alike, and find one that is 5 % slower: matrices of copies, as a table in Markdown.

python -m tests.bench.alike

DDP, three files with the same content and its control `copy` take turns, and so does its control `delayed`. Five that are alike make ten
pairs, judged as the report judges the pairs of five backends, and as it would judge each pair alone, which errs in 5 % of pairs. Every
matrix has seeds of its own. On a quiet machine of two cores a matrix takes about four minutes.
"""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from common.command_line import FROM_1, Bounds
from common.record.definition import Record
from launch.report import entries, measures
from launch.report.entries import Entry
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio, present
from tests.bench import shared
from tests.support.running import copied, with_backends

BACKEND, COPIES = "ddp", ("ddp_a", "ddp_b", "ddp_c")
SETTINGS = ("--workloads", "cnn", "--epochs", "4", "--no-stop-at-target", "--backends", ",".join((BACKEND, *COPIES)))
COLUMNS = (
    "matrix", "pairs that are alike", "called different", "as pairs alone", "delayed to alike", "called slower", "as pairs alone",
)  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """How much is run."""

    num_matrices: Annotated[int, FROM_1] = 2
    """Matrices that are run, with ten pairs each."""
    repeats: Annotated[int, Bounds(at_least=MIN_RUNS_CONFIDENT)] = MIN_RUNS_CONFIDENT
    """Repeats of each."""


class Verdicts(NamedTuple):
    """The ratios of the pairs of a matrix that are alike, and those of the delayed one, each judged as one of all pairs and alone."""

    alike: list[Ratio]
    alike_alone: list[Ratio]
    delayed: list[Ratio]
    delayed_alone: list[Ratio]

    def cells(self) -> tuple[int | str, ...]:
        """Counts the verdicts."""
        num_different = [sum(bool(ratio.verdict) for ratio in ratios) for ratios in (self.alike, self.alike_alone)]
        num_slower = [sum(bool(ratio.verdict and ratio.value > 1) for ratio in ratios) for ratios in (self.delayed, self.delayed_alone)]
        delays = [ratio.value for ratio in self.delayed]
        return len(self.alike), *num_different, f"{min(delays):.3f} to {max(delays):.3f}", *num_slower


def run(arguments: Arguments) -> None:
    """Runs the matrices, and prints the verdicts of each and of all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkout = copied(folder)
        text = (checkout / "frameworks" / f"{BACKEND}.py").read_text()
        records: list[Record] = []
        with with_backends(checkout, dict.fromkeys(COPIES, text)):
            for _ in range(arguments.num_matrices):
                records = shared.matrix(checkout, folder / "results", *SETTINGS, "--repeats", arguments.repeats)
    judged = {matrix: verdicts(of_matrix) for matrix, of_matrix in entries.matrices(records).items()}
    judged["all"] = Verdicts(*([ratio for of_matrix in judged.values() for ratio in of_matrix[part]] for part in range(4)))
    print(shared.head(COLUMNS))
    for matrix, of_matrix in judged.items():
        print(shared.row((matrix, *of_matrix.cells())))


def verdicts(records: list[Record]) -> Verdicts:
    """Returns the Verdicts on the records of a matrix."""
    by_name: dict[str, list[Record]] = {}
    for record in sorted(records, key=entries.key_of):
        by_name.setdefault(f"{record.backend} {record.settings.control}", []).append(record)
    delayed = Entry("delayed", shared.NUM_RANKS, tuple(by_name.pop(f"{BACKEND} delayed")))
    alike = [Entry(name, shared.NUM_RANKS, tuple(of_name)) for name, of_name in by_name.items()]
    pairs = list(itertools.combinations(alike, 2))
    return Verdicts(
        present(measures.epoch_ratio(*pair, alike) for pair in pairs),
        present(measures.epoch_ratio(*pair, pair) for pair in pairs),
        present(measures.epoch_ratio(delayed, entry, alike) for entry in alike),
        present(measures.epoch_ratio(delayed, entry, [delayed, entry]) for entry in alike),
    )


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
