"""The lesson of what each way of sharing a training sends: the bytes that were counted, beside the formulas."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

from common import backends
from common.backends import BASELINE
from common.config import Settings
from common.cost import sharing
from common.errors import UserError
from common.workloads import gradient_bytes
from launch.lesson import running
from launch.report import volumes
from launch.report.export import terminal
from launch.report.tables import BACKEND, Column, filled
from launch.report.words import listed, ranks_of
from launch.run import available
from launch.run.options import SENDING
from launch.run.plan import plan, stamped


@dataclass(frozen=True)
class Sends:
    """What each way of sharing a training sends in a step: an epoch with each, and the counted bytes beside the formulas."""

    backends: str | None = None
    """Backends and variants, separated by commas, such as ddp,fsdp,deepspeed_zero@3. Default: all that share in a way of their own.
    What cannot run here is left out with the reason."""
    workload: str = "cnn"
    """Workload that is trained."""
    ranks: Annotated[int, SENDING] = 2
    """Number of ranks."""
    runs: running.Options = running.DEFAULT

    def run(self):
        """Runs the lesson and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
        return running.run(self.runs, partial(sends_jobs, self), available.runnable, show_sends)


class Sent(NamedTuple):
    """What a rank sends in a step: in all, `collectives` by name, as counted; and by its formula, None where none is declared."""

    backend: str
    num_bytes: float
    collectives: str
    formula: str | None
    expected_bytes: float | None


def sends_jobs(lesson, results, machine, stamp):
    """The jobs of the lesson, one for each way of sharing. Raises UserError for what makes no jobs; prints what is left out."""
    names = backends.chosen(lesson.backends) if lesson.backends else [way for way in sharing.every_way() if way != BASELINE]
    if BASELINE in names:
        raise UserError(f"{BASELINE} trains in one process and sends nothing; leave it out")
    settings = Settings(epochs=1, stop_at_target=False, results=results, machine=machine)
    jobs = stamped(plan(names, [lesson.workload], [lesson.ranks], 1, None, settings), f"{stamp}-sends")
    return jobs if lesson.backends else available.trainable(jobs)


def sent_of(record):
    """The Sent of a record; None where the run has counted nothing."""
    counted = volumes.sent_by_collective(record) if record.status == "ok" else None
    if not counted:
        return None
    way = sharing.of(record.backend)
    used = [name.replace("_", "-") for name in counted if round(counted[name] / sum(counted.values()), 3)]
    return Sent(record.backend, sum(counted.values()), ", ".join(used), way and way.formula, volumes.expected_sent_bytes(record))


def tables(sents):
    """The table of Sents: what was counted, beside the formula."""
    columns = (
        BACKEND, Column("by"), Column("bytes a step and rank", ",.0f"), Column("formula"), Column("formula's bytes", ",.0f"),
        Column("ratio", ".2f"),
    )  # fmt: skip
    return filled("", columns, [(sent.backend, sent.collectives, float(sent.num_bytes), *_theory(sent)) for sent in sents])


def _theory(sent):
    expected = sent.expected_bytes
    return (sent.formula, float(expected), sent.num_bytes / expected) if expected else (None, None, None)


def conclusion(sents):
    """What the Sents show, as sentences, and no more."""
    if not sents:
        return ["nothing to compare: no run has counted what it sends"]
    replicated = next((sent for sent in sents if sent.formula == sharing.WAYS["replicated"].formula), sents[0])
    names_by_ratio = _by_ratio(sents, lambda sent: replicated.num_bytes)
    senders = names_by_ratio.pop(1.0)
    beginning = f"{listed(senders)} {'send the same,' if len(senders) > 1 else 'sends'} {replicated.num_bytes:,.0f} bytes a step"
    multiples = [f"{listed(names)} {_verb(names)} {ratio:.2f} times as much" for ratio, names in sorted(names_by_ratio.items())]
    sentences = ["; ".join([beginning, *multiples])]
    with_formula = [sent for sent in sents if sent.expected_bytes]
    by_formula = _by_ratio(with_formula, lambda sent: sent.expected_bytes)
    deviations = [f"{listed(names)} {_verb(names)} {ratio:.2f} times" for ratio, names in sorted(by_formula.items()) if ratio != 1]
    if deviations:
        sentences.append(f"other than by formula: {'; '.join(deviations)} the formula's bytes")
    elif with_formula:
        sentences.append(f"{'each sends' if len(with_formula) > 1 else 'it sends'} what the formula gives")
    return sentences


def _by_ratio(sents, reference):
    """{ratio to the reference's bytes, to two digits: names of the backends}."""
    names = {}
    for sent in sents:
        names.setdefault(round(sent.num_bytes / reference(sent), 2), []).append(sent.backend)
    return names


def _verb(names):
    return "send" if len(names) > 1 else "sends"


def show_sends(runs):
    """Prints the table and the sentences."""
    settings = Settings(workload=runs[0].workload, precision=runs[0].settings.precision)
    sents = sorted(filter(None, map(sent_of, runs)), key=lambda sent: sent.num_bytes)
    at = f"{settings.workload} at {ranks_of(runs[0].num_ranks)}"
    symbols = f"{at}: n ranks, N parameters of P = {gradient_bytes(settings):,.0f} bytes, k the steps from one average to the next"
    terminal.show_result(tables(sents), [symbols, *conclusion(sents)])
