"""The backends as the tests need them, from their own declarations."""

import re

from common.backends import file_of, has_one_rank, is_exact, variants_of
from common.config import Settings
from common.cost import parallelism
from common.declarations import FOLDER, declared

DISTRIBUTED = tuple(name for name in declared() if not has_one_rank(name))
# The last of their ranks has the optimizer.
SERVED = tuple(name for name in DISTRIBUTED if declared()[name].num_servers)
# Held to 1e-10 in float64; those with float32 master parameters to 1e-6.
EXACT = tuple(name for name in DISTRIBUTED if is_exact(name) and not declared()[name].float32_masters)
FLOAT32_MASTERS = tuple(name for name in DISTRIBUTED if declared()[name].float32_masters)
VARIANTS = tuple(variant for name in EXACT for variant in variants_of(name) if is_exact(variant))
TEXTS = {name: (FOLDER / f"{name}.py").read_text() for name in declared()}
ON_PYTORCH = tuple(name for name, text in TEXTS.items() if "pytorch" in text)


def uses(name, library):
    """Whether a backend's file has the name of a library that can be started only once in a process: `hvd` or `deepspeed`."""
    return library in re.findall(r"\w+", TEXTS[name])


# Of every way to find the other ranks one on PyTorch: what is started under every launcher. Horovod finds them for TensorFlow as it does
# for PyTorch.
_BY_DEFAULT = [name for name in DISTRIBUTED if declared()[name].by_default and name in ON_PYTORCH]
LAUNCHED = tuple({tuple(uses(name, library) for library in ("hvd", "deepspeed")): name for name in _BY_DEFAULT[::-1]}.values())
# DeepSpeed, which reads variables, is started on several nodes alone.
LAUNCHED_ON_ONE_NODE = tuple(name for name in LAUNCHED if not uses(name, "deepspeed"))
# PyTorch's process group can be started as often as one likes.
RESTARTED = tuple(name for name in ON_PYTORCH if not uses(name, "hvd") and not uses(name, "deepspeed"))
# DeepSpeed keeps the process group, and Horovod, which those on one framework share, ends with the last run.
IN_ORDER = tuple(sorted(ON_PYTORCH, key=lambda name: (uses(name, "hvd"), uses(name, "deepspeed"))))
# Not MultiWorkerMirroredStrategy, which must be there before anything is computed.
ON_TENSORFLOW = tuple(
    sorted((name for name in TEXTS if name not in ON_PYTORCH and not uses(name, "mirrored")), key=lambda name: uses(name, "hvd"))
)


def group_of(name, num_ranks):
    """The group of the tests of a backend, or a variant: one process makes the runs that they need. Groups take about as long as others.

    Four ranks of PyTorch are started once.
    """
    backend = file_of(name)
    if backend not in IN_ORDER:
        return "trained on TensorFlow"
    return "trained on PyTorch" if backend in RESTARTED and num_ranks < 4 else "trained with a library"


def runs_of(item):
    """[(name, ranks, run)] that a collected test needs, by the function of its parameters in its mark `runs`; none if it is skipped."""
    mark, callspec = item.get_closest_marker("runs"), getattr(item, "callspec", None)
    if mark is None or item.get_closest_marker("skip"):
        return []
    return list(mark.kwargs["needed"](**(callspec.params if callspec else {})))


def started_in_order(name):
    """The backends whose runs can be made in the same processes as those of a backend, in this order."""
    return next((group for group in (IN_ORDER, ON_TENSORFLOW) if name in group), (name,))


def trains(name, workload):
    """Whether a backend trains a workload."""
    return any(parallelism.problem(name, Settings(workload=workload), num_ranks) is None for num_ranks in (1, 2))
