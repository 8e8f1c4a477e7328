"""Backends written for a test: another one that does something more where it reports a step, such as failing on rank 1."""

import json
import time
from typing import NamedTuple

from common.backends import Backend, declared
from tests.support.running import left_over, matrix

TEXT = """
import os, signal, time
from pathlib import Path

from common.backends import Backend
from common.training.program import main
from frameworks import {backend}

BACKEND = {declaration}


class Trainer({backend}.Trainer):
    def train_epoch(self, batches, observe):
        def observed(loss, losses=[]):
            losses.append(loss)
            rank, step = self.ranks.rank, len(losses)
            {statement}
            observe(loss)

        super().train_epoch(batches, observed)


if __name__ == "__main__":
    main(Trainer, __file__)
"""
# What rank 1 does in its twentieth step.
FAULTS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "raised": "raise RuntimeError('rank 1 has had enough')",
}


class Outcome(NamedTuple):
    """The record of a run with a fault, the seconds from the fault to its end, and the command lines of what it left running."""

    record: dict
    seconds: float
    left: list


def text(backend, statement, declaration="Backend()"):
    """The file of a backend. The statement, in one line, runs where a step is computed and communicated, and not reported yet.

    It may use `rank`, and `step`, which is the number of the step in its epoch, from 1.
    """
    return TEXT.format(backend=backend, statement=statement, declaration=declaration)


def run(checkout, backend, fault, folder, *arguments, around=(), variables=None):
    """The Outcome of a matrix of two ranks in a copy of the checkout, through the commands `around` and with `variables`, if any.

    `backend` may be a variant.
    """
    backend, at_sign, variant = backend.partition("@")
    file = f"{backend}_{fault}"
    name, program, at = f"{file}{at_sign}{variant}", checkout / "frameworks" / f"{file}.py", checkout / f"{file}.at"
    fields = [f"{field}={value!r}" for field, value in declared()[backend]._asdict().items() if value != Backend._field_defaults[field]]
    statement = f"if step == 20 and rank == 1: Path({at.name!r}).write_text(str(time.time())); {FAULTS[fault]}"
    program.write_text(text(backend, statement, f"Backend({', '.join(fields)})"))
    settings = ("--backends", name, "--workloads", "cnn", "--epochs", "2", "--no-stop-at-target", *arguments)
    try:
        done = matrix(checkout, folder, "2", *settings, around=around, variables=variables)
        ended = time.time()
        (path,) = folder.glob(f"here/*-{name}-n2-*.json")
        record = json.loads(path.read_text())
        assert at.exists(), "\n".join([done.stdout, done.stderr, *record["output_tail"]])
        return Outcome(record, ended - float(at.read_text()), left_over(checkout))
    finally:
        program.unlink()
        at.unlink(missing_ok=True)
