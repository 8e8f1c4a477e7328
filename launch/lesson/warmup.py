"""The lesson of learning-rate warm-up: one training twice, from the first step at the scaled rate and warmed up to it."""

from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Annotated

from common import backends
from common.backends import BASELINE
from common.command_line import FROM_1, RANKS
from common.config import Seed, Settings
from common.errors import UserError
from launch.lesson import running
from launch.report.export import terminal
from launch.report.tables import Column, filled
from launch.report.words import ranks_of
from launch.run import available
from launch.run.plan import plan, stamped

WARMUP_EPOCHS = 3
# Chance is 1/10, with ten digits; what ends below NEAR_CHANCE has learned next to nothing, what ends at TRAINED or above has learned.
NEAR_CHANCE = 0.2
TRAINED = 0.9
# Of 1,027 held-out digits, what another seed moves easily.
SMALL = 0.05

BOTH = {"stays near chance": "both stay near chance", "falls back to near chance": "both fall back to near chance"}
FAILURES = {"failed": "failed", "timeout": "ran out of time"}
PLOT_HEIGHT = 21
PLOT_WIDTH = 65
MARKS = "o+"
# Of a point that two curves share.
SHARED = "*"


@dataclass(frozen=True)
class Warmup:
    """The CNN with Adam at a rate scaled with the ranks, once from the first step and once warmed up over three epochs."""

    backend: str = "ddp"
    """Backend that trains."""
    ranks: Annotated[int, RANKS] = 8
    """Number of ranks; the rate is scaled with it."""
    epochs: Annotated[int, FROM_1] = 14
    """Epochs that each run trains."""
    seed: Seed = 1
    """Seed of both runs."""
    batch_size: Annotated[int, FROM_1] = 8
    """Samples a step on each rank. With more, an epoch of the digits is but a few steps."""
    runs: running.Options = running.DEFAULT

    def run(self):
        """Runs the lesson and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
        return running.run(self.runs, partial(warmup_jobs, self), settled, show_warmup)


def settled(jobs, launcher):
    """The jobs, on the device that they run on. Raises UserError where the backend cannot run here."""
    jobs, reasons = available.settled(jobs, launcher)
    for backend, reason in reasons.items():
        raise UserError(f"{backend} cannot run here: {reason}")
    return jobs


def warmup_jobs(lesson, results, machine, stamp):
    """The two jobs of the lesson, without and with warm-up. Raises UserError for what makes no jobs."""
    names = backends.chosen(lesson.backend)
    if len(names) != 1:
        raise UserError(f"--backend is {lesson.backend}; it must be one backend")
    if names == [BASELINE] and lesson.ranks > 1:
        raise UserError(f"{BASELINE} trains in one process; give --ranks 1 or another --backend")
    jobs = []
    for name, warmup_epochs in (("without", 0.0), ("with", float(WARMUP_EPOCHS))):
        settings = Settings(
            optimizer="adam", learning_rate=0.01, scaling="weak", warmup_epochs=warmup_epochs, epochs=lesson.epochs, stop_at_target=False,
            seed=lesson.seed, batch_size=lesson.batch_size, step_breakdown=False, results=results, machine=machine,
        )  # fmt: skip
        jobs += stamped(plan(names, ["cnn"], [lesson.ranks], 1, None, settings), f"{stamp}-warmup-{name}")
    return jobs


def by_epoch(record):
    """(the rate of the last step, accuracy, loss on held-out samples) of a run, each by epoch; those of a run that failed may end early."""
    num_steps = len(record.learning_rates) // max(len(record.train_seconds), 1)
    rates = record.learning_rates[num_steps - 1 :: num_steps] if num_steps else []
    return rates, record.accuracies, record.eval_losses


def tables(without, warmed):
    """The table of both runs, epoch by epoch, from their records."""
    columns, values = [Column("epoch")], []
    for quantity, *of_runs in zip(("rate", "accuracy", "held-out loss"), by_epoch(without), by_epoch(warmed), strict=True):
        columns += [Column(f"{quantity} {case} warm-up", ".4f") for case in ("without", "with")]
        values += of_runs
    return filled("", tuple(columns), [(number, *row) for number, row in enumerate(zip_longest(*values), 1)])


def conclusion(without, warmed):
    """One sentence with what the records of both runs show, and no more."""
    failed = {name: run.status for name, run in (("without", without), ("with", warmed)) if run.status != "ok"}
    if failed:
        return "nothing to compare: " + " and ".join(f"the run {name} warm-up {FAILURES[status]}" for name, status in failed.items())
    curves = without.accuracies, warmed.accuracies
    num_epochs, warmup_epochs = len(curves[0]), warmed.settings.warmup_epochs
    endings = [f"{curve[-1]:.2f}{f' ({max(curve):.2f} at best)' if max(curve) - curve[-1] >= SMALL else ''}" for curve in curves]
    numbers = f"without warm-up {endings[0]} after {epochs(num_epochs)}, with {epochs(warmup_epochs)} of warm-up {endings[1]}"
    if warmed.num_ranks == 1:
        return f"{numbers}: with 1 rank the rate is not scaled, and warm-up changes nothing"
    if num_epochs < warmup_epochs:
        return f"{numbers}: too short to tell, since the warm-up had not ended"
    # The printed numbers are judged: 0.897 is printed as 0.90.
    rounded = [[round(accuracy, 2) for accuracy in curve] for curve in curves]
    return f"{numbers}: {judgement(*rounded)}, at {ranks_of(warmed.num_ranks)} and with one seed"


def judgement(without, warmed):
    """The effect of the warm-up, from two curves of accuracy."""
    gain = warmed[-1] - without[-1]
    if without[-1] >= TRAINED and warmed[-1] >= TRAINED:
        return "it trains without warm-up too"
    if without[-1] < NEAR_CHANCE and warmed[-1] < NEAR_CHANCE and ending(without) == ending(warmed):
        return BOTH[ending(without)]
    if max(without[-1], warmed[-1]) >= NEAR_CHANCE and abs(gain) < SMALL:
        return "no clear difference"
    if min(without[-1], warmed[-1]) < NEAR_CHANCE:
        return f"without it the run {ending(without)}, with it the run {ending(warmed)}"
    return f"warm-up ends {'higher' if gain > 0 else 'lower'} by {abs(gain):.2f}"


def ending(curve):
    """How a curve of accuracy went, as the end of a sentence."""
    if max(curve) < NEAR_CHANCE:
        return "stays near chance"
    if curve[-1] < NEAR_CHANCE:
        return "falls back to near chance"
    return "trains" if curve[-1] >= TRAINED else "ends above chance"


def epochs(number):
    return f"{number:g} epoch" if number == 1 else f"{number:g} epochs"


def plot(curves, height=PLOT_HEIGHT):
    """The lines of a plot of {name: values from 0 to 1 by epoch} for a terminal; None and missing values are left out."""
    num_epochs = max((len(values) for values in curves.values()), default=0)
    # At most three characters per epoch, so that the points of short runs stay close together.
    last_column = min(3 * (num_epochs - 1), PLOT_WIDTH - 1)
    columns = [round(index * last_column / max(num_epochs - 1, 1)) for index in range(num_epochs)]
    marks = dict(zip(curves, MARKS, strict=False))
    points = {}
    for name, values in curves.items():
        for column, value in zip(columns, values, strict=False):
            if value is not None:
                place = round((1 - value) * (height - 1)), column
                points[place] = marks[name] if points.get(place, marks[name]) == marks[name] else SHARED
    if not points:
        return ["nothing to plot"]
    labelled = {round((1 - fifth / 5) * (height - 1)): f"{fifth / 5:.1f}" for fifth in range(6)}
    rows = ["".join(points.get((row, column), " ") for column in range(last_column + 1)) for row in range(height)]
    lines = [f"{labelled.get(number, ''):>4} | {row}".rstrip() for number, row in enumerate(rows)]
    epoch_numbers = "1" if num_epochs == 1 else f"1{num_epochs:>{last_column}}"
    legend = [f"{marks[name]} {name}" for name in curves] + ([f"{SHARED} both"] if SHARED in points.values() else [])
    return [*lines, "     +" + "-" * (last_column + 2), f"       {epoch_numbers} epoch", f"       {'   '.join(legend)}"]


def show_warmup(runs):
    """Prints the table, the plot and the sentence."""
    without, warmed = runs
    curves = {"accuracy without warm-up": without.accuracies, "accuracy with warm-up": warmed.accuracies}
    terminal.show_result(tables(without, warmed), [*plot(curves), "", conclusion(without, warmed)])
