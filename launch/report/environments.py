"""On what records ran: the machine, its hardware and software, and its limit, which is the fastest matrix product in its records."""

from collections.abc import Hashable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from common.backends import declaration_of
from common.declarations import COMPUTES_BY
from common.record.definition import Record
from common.record.parts import Environment, Processor

# A framework whose product is below this share of the limit is named.
LOW_PERCENT = 80


class Limit(NamedTuple):
    """Floating-point operations a second of the fastest product, and the name of the library that computes it."""

    flops_per_second: float
    library: str


class SlowProduct(NamedTuple):
    """A framework whose product is slow, in words with the remedy where the cause is known: that MKL takes slow kernels there."""

    text: str
    is_mkl_slow: bool


def device_of(record: Record) -> str | None:
    """Returns the device that a run used, `cpu` or `cuda`; None where it is not known, as where a run failed before it was chosen."""
    requested = record.settings.device
    return record.environment.device or (None if requested == "auto" else requested)


def values_of(records: Iterable[Record]) -> dict[str, list[str]]:
    """Returns the sorted values, by name, of what should be the same for all records: hardware, software, and how they ran."""
    by_name: dict[str, set[str]] = {}
    for record in records:
        environment, gpu = record.environment, record.environment.gpu
        values = {
            "launcher": record.launcher,
            "MPI": " ".join((environment.mpi or "").split()),
            "commit": (environment.git_commit or "unknown")[:8] + ("+changes" if environment.git_changed else ""),
            "device": device_of(record),
            "threads": str(record.settings.threads),
            "processor": processor_of(environment),
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
    old, new = values_of(before), values_of(after)
    texts_of = {name: [", ".join(values.get(name, ())) or "none" for values in (old, new)] for name in old | new}
    return ", ".join(f"{name} {' to '.join(texts)}" for name, texts in texts_of.items() if texts[0] != texts[1])


def describe_node(environment: Environment) -> str:
    """Returns the processor of a node with its number of cores."""
    return f"{processor_of(environment)}, {environment.num_cores} {'core' if environment.num_cores == 1 else 'cores'}"


def processor_of(environment: Environment) -> str:
    """Returns the processor of a node, as `AMD EPYC, family 26 model 2, KVM`: the name alone often says neither kind nor hypervisor."""
    processor = environment.processor or Processor()
    numbers = [f"{name} {number}" for name in ("family", "model") if (number := getattr(processor, name)) is not None]
    return ", ".join(filter(None, [environment.cpu, " ".join(numbers), processor.hypervisor]))


def limits_of(records: Iterable[Record]) -> dict[Hashable, Limit]:
    """Returns the limit of each way to compute on the machine, from what is measured in any of the records.

    Nothing makes a product faster than it can be, so the fastest counts. The peak of an older record is the product of its own framework.
    """
    limit_of: dict[Hashable, Limit] = {}
    for record in records:
        if record.peak_flops_per_second:
            limit = Limit(record.peak_flops_per_second, record.peak_library or _framework(record))
            limit_of[limit_key(record)] = max(limit, limit_of.get(limit_key(record), limit))
    return limit_of


def limit_key(record: Record) -> Hashable:
    """Returns what the limit belongs to: how a run computes, by device, precision and number of threads."""
    gpu = record.environment.gpu
    return device_of(record), gpu and gpu.model, record.settings.precision, record.settings.threads


def slow_products(records: Sequence[Record]) -> list[SlowProduct]:
    """Returns each framework of the records whose product is below LOW_PERCENT of the limit."""
    limit_of = limits_of(records)
    fastest: dict[tuple[Hashable, str], tuple[float, Record]] = {}
    for record in records:
        if record.peak_flops_per_second:
            speed, key = record.peak_flops_per_second * (record.framework_product_share or 1.0), (limit_key(record), _framework(record))
            fastest[key] = max(fastest.get(key, (speed, record)), (speed, record), key=itemgetter(0))
    return [
        _slow_product(framework, percent, record)
        for (key, framework), (speed, record) in sorted(fastest.items(), key=lambda item: item[0][1])
        if (percent := 100 * speed / limit_of[key].flops_per_second) < LOW_PERCENT
    ]


def _slow_product(framework: str, percent: float, record: Record) -> SlowProduct:
    num_threads, gpu = record.settings.threads, record.environment.gpu
    processor = "this GPU" if gpu else "this core" if num_threads == 1 else f"{num_threads} cores"
    # PyTorch's wheels have MKL, which multiplies no bfloat16.
    is_mkl_slow = framework == "PyTorch" and not gpu and record.settings.precision != "bf16" and "AMD" in record.environment.cpu
    remedy = f"; --mkl-kernels fast {'doubles' if percent <= 50 else 'raises'} that" if is_mkl_slow else ""
    return SlowProduct(f"{framework} multiplies at {percent:.0f} % of what {processor} can{remedy}", is_mkl_slow)


def _framework(record: Record) -> str:
    framework = declaration_of(record.backend).framework
    return COMPUTES_BY.get(framework, framework)
