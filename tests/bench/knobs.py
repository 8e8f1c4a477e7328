"""Whether a library's own settings make it faster: each against the backend as it is, side by side, as a table in Markdown.

python -m tests.bench.knobs --repeats 6 --backends ddp,horovod_torch

Every row is a copy of the backend's file with one line changed. A user finds the same for another machine, model or setting so.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common.command_line import names_in
from launch.report import entries
from launch.report.words import interval
from tests.bench import shared
from tests.support.running import copied

COLUMNS = ("backend", "setting", "workload", "repeats", "ratio to the backend as it is", "95 % interval", "verdict")


class Knob(NamedTuple):
    """A setting of a library: the backend, what is written for it in the table, and the text of the backend's file that it replaces."""

    backend: str
    setting: str
    replaced: str
    replacement: str


def argument(setting):
    """A Knob that is an argument of DistributedDataParallel."""
    return Knob("ddp", setting, "forward_sync_buffers=False)", f"forward_sync_buffers=False, {setting})")


def variable(backend, name, value):
    """A Knob that is an environment variable of Horovod."""
    hvd = f"import {backend.replace('_', '.').replace('.tf', '.tensorflow')} as hvd\n"
    return Knob(backend, f"{name}={value}", hvd, f'import os; os.environ["{name}"] = "{value}"\n{hvd}')


def zero(setting):
    """A Knob of DeepSpeed's zero_optimization."""
    line = "        # Otherwise deepspeed.initialize"
    return Knob("deepspeed_zero", setting, line, f'        self.configuration["zero_optimization"] |= {{{setting}}}\n{line}')


def of_tensorflow(call):
    """A Knob that is a call before training."""
    return Knob("horovod_tf", call, "        self.communicates = True\n", f"        self.communicates = True\n        tf.config.{call}\n")


KNOBS = [
    *map(argument, ("gradient_as_bucket_view=True", "static_graph=True", "bucket_cap_mb=1", "bucket_cap_mb=100")),
    *(
        variable("horovod_torch", *setting)
        for setting in [
            ("HOROVOD_FUSION_THRESHOLD", 0), ("HOROVOD_FUSION_THRESHOLD", 2**20), ("HOROVOD_CYCLE_TIME", 0.1), ("HOROVOD_CYCLE_TIME", 5),
            # The thread of each rank on the other's core.
            ("HOROVOD_THREAD_AFFINITY", "1,0"),
        ]
    ),
    *map(zero, ('"overlap_comm": True', '"reduce_bucket_size": 2**18', '"allgather_bucket_size": 2**18', '"contiguous_gradients": True')),
    variable("horovod_tf", "HOROVOD_CYCLE_TIME", 0.1),
    variable("horovod_tf", "TF_ENABLE_ONEDNN_OPTS", 0),
    of_tensorflow('optimizer.set_experimental_options({"layout_optimizer": False})'),
]  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """How much is run, of which backends."""

    repeats: int = 6
    """Repeats of each."""
    backends: str = ",".join(dict.fromkeys(knob.backend for knob in KNOBS))
    """Backends, separated by commas."""


def main(arguments):
    print(shared.head(COLUMNS))
    with tempfile.TemporaryDirectory() as name:
        checkout = copied(Path(name))
        for backend in names_in(arguments.backends):
            knobs = {f"{backend}_{number}": knob for number, knob in enumerate(KNOBS) if knob.backend == backend}
            for copy, knob in knobs.items():
                source = (checkout / "frameworks" / f"{backend}.py").read_text()
                assert source.count(knob.replaced) == 1, knob
                (checkout / "frameworks" / f"{copy}.py").write_text(source.replace(knob.replaced, knob.replacement))
            compared = ("--backends", ",".join([backend, *knobs]), "--workloads", "cnn,transformer", "--repeats", arguments.repeats)
            for comparison in entries.comparisons(shared.matrix(checkout, Path(name) / backend, *compared)):
                for copy, knob in knobs.items():
                    ratio = entries.epoch_ratio(*(comparison.entry(name, shared.NUM_RANKS) for name in (copy, backend)), comparison.entries)
                    setting, value = f"`{knob.setting.replace(chr(34), '')}`", f"{ratio.value:.3f}"
                    row = backend, setting, comparison.workload, ratio.num_above, value, interval(ratio), shared.verdict(ratio)
                    print(shared.row(row), flush=True)


if __name__ == "__main__":
    shared.main(main, Arguments, __file__, __doc__)
