"""Backends written for a test: another one that does something more where it reports a step, such as failing on rank 1."""

from common.declarations import Backend, declared
from tests.support.running import left_over, matrix, records_in, with_backends

TEXT = """
import os, signal

from common.declarations import Backend, Bounds, Setting
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
# What rank 1 does in its fifth step.
FAULTS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "raised": "raise RuntimeError('rank 1 has had enough')",
}


def text(backend, statement, declaration="Backend()"):
    """The file of a backend. The statement, in one line, runs where a step is computed and communicated, and not reported yet.

    It may use `rank`, and `step`, which is the number of the step in its epoch, from 1.
    """
    return TEXT.format(backend=backend, statement=statement, declaration=declaration)


def faulty(backend, fault):
    """The file of a backend with a fault, which has the variants that the backend has."""
    fields = [f"{field}={value!r}" for field, value in declared()[backend]._asdict().items() if value != Backend._field_defaults[field]]
    return text(backend, f"if step == 5 and rank == 1: {FAULTS[fault]}", f"Backend({', '.join(fields)})")


def run(checkout, backends, fault, folder, *arguments, around=(), variables=None):
    """({backend: its record}, what was left running) of a matrix of two ranks, of which rank 1 has a fault with each of these backends.

    The matrix runs in a copy of the checkout, through the commands `around` and with `variables`, if any.
    """
    names = {f"{backend}_{fault}": backend for backend in backends}
    settings = ("--backends", ",".join(names), "--workloads", "cnn", "--epochs", "1", "--no-stop-at-target", *arguments)
    with with_backends(checkout, {name: faulty(backend, fault) for name, backend in names.items()}):
        done = matrix(checkout, folder, "2", *settings, around=around, variables=variables)
    records = {names[record["backend"]]: record for record in records_in(folder)}
    assert records.keys() == set(backends), done.stdout + done.stderr
    return records, left_over(checkout)
