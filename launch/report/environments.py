"""The hardware and software of records, by name."""

from collections.abc import Iterable

from common.record.definition import Record
from common.record.parts import Environment, Processor
from launch.report import limits
from launch.report.tables import MIB


def values_of(records: Iterable[Record]) -> dict[str, list[str]]:
    """Returns the sorted values, by name, of what should be the same for all records: hardware, software, and how they ran."""
    by_name: dict[str, set[str]] = {}
    for record in records:
        environment, gpu, processor = record.environment, record.environment.gpu, record.environment.processor or Processor()
        values = {
            "launcher": record.launcher,
            "MPI": " ".join((environment.mpi or "").split()),
            "commit": (environment.git_commit or "unknown")[:8] + ("+changes" if environment.git_changed else ""),
            "processor": processor_of(environment),
            "stepping": None if processor.stepping is None else str(processor.stepping),
            "L3": processor.l3_bytes and f"{processor.l3_bytes / MIB:g} MiB, shared by {processor.l3_shared_by or 'unknown'}",
            "governor": processor.governor,
            "cores": str(environment.num_cores),
            "GPU": gpu and gpu.model,
            "driver": gpu and gpu.driver,
            "Python": environment.python,
            "turns": {None: None, 0: "one after the other"}.get(record.num_turns, "side by side"),
            **environment.packages,
        }
        for name, value in values.items():
            by_name.setdefault(name, set()).update({value} if value else ())
    return {name: sorted(values) for name, values in by_name.items()}


def changes(before: Iterable[Record], after: Iterable[Record]) -> str:
    """Returns what differs between two sets of records, such as `torch 2.12.0 to 2.13.0`."""
    before, after = list(before), list(after)
    old, new = values_of(before), values_of(after)
    sides = {name: [", ".join(values.get(name, ())) or "none" for values in (old, new)] for name in old | new}
    differing = [f"{name} {' to '.join(texts)}" for name, texts in sides.items() if texts[0] != texts[1]]
    apart = limits.apart(before, after)
    return ", ".join([*differing, *([f"the machine ({apart})"] if apart else [])])


def describe_node(environment: Environment) -> str:
    """Returns the processor of a node with its number of cores."""
    return f"{processor_of(environment)}, {environment.num_cores} {'core' if environment.num_cores == 1 else 'cores'}"


def processor_of(environment: Environment) -> str:
    """Returns the processor of a node, as `AMD EPYC, family 26 model 2, KVM`: the name alone often says neither kind nor hypervisor."""
    processor = environment.processor or Processor()
    numbers = [f"{name} {number}" for name in ("family", "model") if (number := getattr(processor, name)) is not None]
    return ", ".join(filter(None, [environment.cpu, " ".join(numbers), processor.hypervisor]))
