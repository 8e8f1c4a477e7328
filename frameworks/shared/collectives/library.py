"""What launch/collectives measures: a library that has begun, with its collectives as functions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from common.process.ranks import Ranks


class Prepared(NamedTuple):
    """A collective with its buffers. `call()` does it and waits for its end; the result is then in `received`.

    `received`: an array or a tensor; None where call() returns it.
    """

    call: Callable[[], object]
    received: object = None


# Takes two float32 arrays, what this rank contributes and room for what it receives.
Prepare = Callable[[np.ndarray, np.ndarray], Prepared]


@dataclass(frozen=True)
class Library:
    """A library in which all ranks have begun.

    `sum(values)`: sum-all-reduce of float64 values. `collectives`: functions by name of the collective and whether it is
    in place. `end()`: leaves it. `synchronize()`: waits for what has only been queued.
    `as_array(received)`: a result in main memory. `missing`: {collective: why the library does not have it}. `versions`: {name: version}
    beyond those of Python packages.
    """

    ranks: Ranks
    sum: Callable[[np.ndarray], np.ndarray]
    collectives: dict[tuple[str, bool], Prepare]
    end: Callable[[], object]
    synchronize: Callable[[], object] = lambda: None
    as_array: Callable[[Any], np.ndarray] = np.asarray
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
