"""Whether being stopped between turns favours a backend: the length of turns against none, as tables in Markdown.

python -m tests.bench.turns --repeats 6

All backends and a copy of DDP train the CNN on 2 ranks, in turns of each length and one after the other.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.process.turns import TURN_SECONDS
from launch.report import entries, epochs, statistics
from launch.report.words import interval
from tests.bench import shared
from tests.bench.interleaving import ONE_AFTER_THE_OTHER
from tests.support.running import copied

COPY = "ddp_again"
BACKENDS = ("ddp", COPY, "horovod_torch", "deepspeed_zero", "horovod_tf", "horovod_keras")
SETTINGS = ("--workloads", "cnn", "--backends", ",".join(BACKENDS), "--epochs", 4, "--no-stop-at-target")
LENGTHS = (0.1, 0.3, 1.0, 3.0)
NONE = "none"
COLUMNS = ("turns (s)", "backend", "to no turns", "95 % interval", "to ddp", "95 % interval", "first step of a turn to the others")


@dataclass(frozen=True)
class Arguments:
    """How much is run."""

    repeats: int = 6
    """Repeats under each condition."""


def main(arguments):
    with tempfile.TemporaryDirectory() as name:
        checkout = copied(Path(name))
        (checkout / "frameworks" / f"{COPY}.py").write_text((checkout / "frameworks" / "ddp.py").read_text())
        module = checkout / "common" / "process" / "turns.py"
        source, line = module.read_text(), f"\nTURN_SECONDS = {TURN_SECONDS}\n"
        assert source.count(line) == 1

        def measure(condition, repeat):
            module.write_text(source.replace(line, f"\nTURN_SECONDS = {TURN_SECONDS if condition == NONE else condition}\n"))
            order = ONE_AFTER_THE_OTHER if condition == NONE else ()
            return shared.matrix(checkout, Path(name, str(condition)), *SETTINGS, "--seed", 1 + repeat, *order)

        records_of = shared.in_blocks(measure, [NONE, *LENGTHS], arguments.repeats)
    entry_of = {
        condition: {entry.backend: entry for compared in entries.comparisons(done) for entry in compared.entries}
        for condition, done in records_of.items()
    }
    print(shared.head(COLUMNS))
    for condition in (NONE, *LENGTHS):
        for backend, entry in entry_of[condition].items():
            ratios = *against(entry, entry_of[NONE][backend]), *against(entry, entry_of[condition]["ddp"])
            print(shared.row((condition, backend, *ratios, first_steps(entry))))


def against(entry, reference):
    """The ratio of the seconds per epoch of an entry to those of another with the same repeats, and its interval; dashes for itself."""
    if entry is reference:
        return "-", "-"
    seconds = [{record.settings.seed: epochs.seconds(record) for record in side.records} for side in (entry, reference)]
    above, below = ([side[seed] for seed in sorted(seconds[0].keys() & seconds[1].keys())] for side in seconds)
    ratio = statistics.simultaneous_ratio(above, below, paired=True, num_compared=len(BACKENDS))
    return f"{ratio.value:.3f}", interval(ratio)


def first_steps(entry):
    """How much longer the first step of a turn takes than the others, without those that begin an epoch; a dash without turns."""
    firsts, later_steps = [], []
    for record in entry.records:
        for epoch in np.array_split(record.step_seconds, len(record.train_seconds)):
            for number, seconds in enumerate(epoch[1:], 1):
                (firsts if record.steps_per_turn and number % record.steps_per_turn == 0 else later_steps).append(seconds)
    return f"{np.median(firsts) / np.median(later_steps):.2f}" if firsts and later_steps else "-"


if __name__ == "__main__":
    shared.main(main, Arguments, __file__, __doc__)
