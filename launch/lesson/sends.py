"""The lesson of what each way of sharing a training sends: the bytes that were counted, beside the formulas."""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import tyro
from rich.table import Table

from common import backends, sharing
from common.backends import BASELINE
from common.config import Settings
from common.errors import UserError
from common.step_breakdown import gradient_bytes
from launch import matrix
from launch.lesson import running
from launch.plan import plan
from launch.report import volumes
from launch.report.words import listed, ranks_of


@dataclass(frozen=True)
class Sends:
    """What each way of sharing a training sends in a step: an epoch with each, and the counted bytes beside the formulas."""

    backends: str | None = None
    """Backends and variants, separated by commas, such as ddp,fsdp,deepspeed_zero@3. Default: all that share in a way of their own.
    What cannot run here is left out with the reason."""
    workload: str = "cnn"
    """Workload that is trained."""
    ranks: int = 2
    """Number of ranks."""
    how: Annotated[running.How, tyro.conf.arg(name="")] = field(default_factory=running.How)

    def run(self):
        """Runs the lesson and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
        return running.run(self.how, lambda *where: sends_jobs(self, *where), settled, show_sends)


class Sent(NamedTuple):
    """What a rank sends in a step: in all, `collectives` by name, as counted; and by its formula, None where none is declared."""

    backend: str
    num_bytes: float
    collectives: str
    formula: str | None
    expected_bytes: float | None


def sends_jobs(lesson, results, machine, stamp):
    """The jobs of the lesson, one for each way of sharing. Raises UserError for what makes no jobs; prints what is left out."""
    if lesson.ranks < 2:
        raise UserError(f"--ranks is {lesson.ranks}; it must be a whole number from 2, since one rank sends nothing")
    names = backends.chosen(lesson.backends) if lesson.backends else every_way()
    if BASELINE in names:
        raise UserError(f"{BASELINE} trains in one process and sends nothing; leave it out")
    settings = Settings(epochs=1, stop_at_target=False, results=results, machine=machine)
    jobs = plan(names, [lesson.workload], [lesson.ranks], 1, None, settings, f"{stamp}-sends")
    return jobs if lesson.backends else matrix.trainable(jobs)


def every_way():
    """Every backend that sends, and the variants that share in another way than it."""
    return [way for way in sharing.every_way() if way != BASELINE]


def settled(jobs, launcher):
    """The jobs that can run here. Prints why others cannot; raises UserError if none can."""
    return matrix.runnable(jobs, launcher, dry_run=False)


def sent(record):
    """The Sent of a record; None where the run has counted nothing."""
    counted = volumes.sent_by_collective(record) if record["status"] == "ok" else None
    if not counted:
        return None
    way = sharing.of(record["backend"])
    used = [name.replace("_", "-") for name in counted if round(counted[name] / sum(counted.values()), 3)]
    return Sent(record["backend"], sum(counted.values()), ", ".join(used), way and way.formula, volumes.expected_sent_bytes(record))


def rows(found):
    """The rows of the table as texts, of Sents."""
    return [[one.backend, one.collectives, _bytes(one.num_bytes), *_theory(one)] for one in found]


def _theory(one):
    if not one.expected_bytes:
        return "-", "-", "-"
    return one.formula, _bytes(one.expected_bytes), f"{one.num_bytes / one.expected_bytes:.2f}"


def _bytes(number):
    return f"{number:,.0f}"


def conclusion(found):
    """What the Sents show, as sentences, and no more."""
    if not found:
        return ["nothing to compare: no run has counted what it sends"]
    first = next((one for one in found if one.formula == sharing.WAYS["replicated"].formula), found[0])
    to_first = _by_ratio(found, lambda one: first.num_bytes)
    same = to_first.pop(1.0)
    head = f"{listed(same)} {'send the same,' if len(same) > 1 else 'sends'} {_bytes(first.num_bytes)} bytes a step"
    others = [f"{listed(names)} {_verb(names)} {ratio:.2f} times as much" for ratio, names in sorted(to_first.items())]
    sentences = ["; ".join([head, *others])]
    theory = [one for one in found if one.expected_bytes]
    to_formula = _by_ratio(theory, lambda one: one.expected_bytes)
    off = [f"{listed(names)} {_verb(names)} {ratio:.2f} times" for ratio, names in sorted(to_formula.items()) if ratio != 1]
    if off:
        sentences.append(f"other than by formula: {'; '.join(off)} the formula's bytes")
    elif theory:
        sentences.append(f"{'each sends' if len(theory) > 1 else 'it sends'} what the formula gives")
    return sentences


def _by_ratio(found, reference):
    """{ratio to the reference's bytes, to two digits: names of the backends}."""
    names = {}
    for one in found:
        names.setdefault(round(one.num_bytes / reference(one), 2), []).append(one.backend)
    return names


def _verb(names):
    return "send" if len(names) > 1 else "sends"


def show_sends(done):
    """Prints the table and the sentences."""
    settings = Settings(workload=done[0]["workload"], precision=done[0]["settings"]["precision"])
    found = sorted((one for record in done if (one := sent(record))), key=lambda one: one.num_bytes)
    table = Table("backend", "by")
    for name, justify in (("bytes a step and rank", "right"), ("formula", "left"), ("formula's bytes", "right"), ("ratio", "right")):
        table.add_column(name, justify=justify)
    for row in rows(found):
        table.add_row(*row)
    at, parameters = f"{settings.workload} at {ranks_of(done[0]['num_ranks'])}", _bytes(gradient_bytes(settings))
    symbols = f"{at}: n ranks, N parameters of P = {parameters} bytes, k the steps from one average to the next"
    running.print_result(table, [symbols, *conclusion(found)])
