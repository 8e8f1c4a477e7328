"""A backend written for a test: another one that does something more where it reports a step."""

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


def text(backend, statement, declaration="Backend()"):
    """The file of a backend. The statement, in one line, runs where a step is computed and communicated, and not reported yet.

    It may use `rank`, and `step`, which is the number of the step in its epoch, from 1.
    """
    return TEXT.format(backend=backend, statement=statement, declaration=declaration)
