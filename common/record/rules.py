"""Rules for keys of a record together, which the type of a single key cannot express (common/record/definition.py)."""

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from common.model.workload_table import WORKLOADS
from common.record.definition import Record
from common.record.parts import BY_RANK

OF_COMPLETED = ("workload_digest", "num_nodes", "import_seconds", "init_seconds", "peak_memory_bytes", "in_sync")
OF_TRAINED = ("samples_per_second", "losses", "samples_per_epoch", "samples_dropped_per_epoch", "train_seconds")
# Settings that have a value in every record, given or not. The target is not one of them, since a workload may have none.
RESOLVED = (*(name for name in WORKLOADS["cnn"].defaults() if name != "target"), "machine")


def problems(record: Record) -> Iterator[str]:
    """Yields a line, `key: problem`, for each rule that a record breaks."""
    from_the_start = not record.resumed_after_epochs
    is_ok, has_target, reached = record.status == "ok", record.target is not None, record.reached is True
    required = (
        ("a completed run", is_ok, OF_COMPLETED),
        ("a completed run that did not resume", is_ok and from_the_start, OF_TRAINED),
        ("a completed run with a target", is_ok and has_target, ("reached",)),
        ("a completed run with a target that did not resume", is_ok and has_target and from_the_start, ("accuracy",)),
        ("a run that diverged, failed or timed out", record.status in ("diverged", "failed", "timeout"), ("error",)),
        ("a run that reached the target and did not resume", reached and from_the_start, ("time_to_solution_seconds",)),
    )
    for description, applies, names in required:
        yield from (f"{name}: {description} has it" for name in names if applies and getattr(record, name) in (None, []))
    excluded = (
        ("a run without a target", not has_target, ("reached", "accuracy")),
        ("a run that resumed or did not reach the target", not (reached and from_the_start), ("time_to_solution_seconds",)),
    )
    for description, applies, names in excluded:
        yield from (f"{name}: {description} has none" for name in names if applies and getattr(record, name) is not None)
    steps, epochs = len(record.step_seconds), len(record.train_seconds)
    samples = record.samples_per_epoch
    if is_ok and epochs and samples is not None and not 1 <= steps // epochs <= samples:
        yield f"step_seconds: {steps} steps in {epochs} epochs of {samples} samples"
    if record.num_nodes is not None and record.num_nodes > record.num_ranks:
        yield f"num_nodes: {record.num_nodes} nodes have {record.num_ranks} ranks"
    if is_ok and record.in_sync is False:
        yield "in_sync: the ranks of a completed run have equal parameters"
    numbers = (record.target, record.accuracy, *record.accuracies) if record.metric == "accuracy" else ()
    yield from (f"accuracy: {number} is not from 0 to 1" for number in numbers if number is not None and not 0 <= number <= 1)
    if record.time_to_solution_seconds == 0:
        yield "time_to_solution_seconds: it is above 0"
    yield from (f"settings/{name}: every run has it" for name in RESOLVED if getattr(record.settings, name) is None)
    yield from _problems_by_rank(record, record.num_ranks)


def _problems_by_rank(part: Any, num_ranks: int, place: str = "") -> Iterator[str]:
    """Yields a line for each list by rank that has the wrong length, in a record or in a part of it."""
    hints = get_type_hints(type(part), include_extras=True)
    for name, value in ((field.name, getattr(part, field.name)) for field in dataclasses.fields(part)):
        if dataclasses.is_dataclass(type(value)):
            yield from _problems_by_rank(value, num_ranks, f"{place}{name}/")
        is_by_rank = any(BY_RANK in getattr(kind, "__metadata__", ()) for kind in (hints[name], *get_args(hints[name])))
        if is_by_rank and value is not None and len(value) != num_ranks:
            yield f"{place}{name}: it has {len(value)} values for {num_ranks} ranks"
