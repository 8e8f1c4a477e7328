"""A backend as its own program is, but that the first training epoch is profiled into a folder: BACKEND FOLDER SETTINGS..."""

import importlib
import sys

import numpy as np

from common import loop
from common.program import main
from launch.trace.profiling import framework_of, profiled


def profile_first_epoch(folder):
    """Puts the profiler around the loop's first epoch, as a loop that knows of it would."""
    train_epoch = loop._train_epoch

    def first(trainer, batches, report):
        loop._train_epoch = train_epoch
        with profiled(folder, trainer.ranks.rank, len(batches), lambda: trainer.sum(np.zeros(1)), framework_of()) as watch:

            def reported(step, loss):
                watch.step()
                report(step, loss)

            return train_epoch(trainer, watch.batches(batches), reported)

    loop._train_epoch = first


if __name__ == "__main__":
    backend, folder = sys.argv[1:3]
    del sys.argv[1:3]
    module = importlib.import_module(f"frameworks.{backend}")
    profile_first_epoch(folder)
    main(module.Trainer, module.__file__)
