"""The limit of a machine, which is the fastest matrix product in its records, and how near to it frameworks and runs come."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from common.backends import declaration_of
from common.record.definition import Record
from common.training.throughput import COMPUTES_BY, FAST_MKL
from launch.report import comparable
from launch.report.statistics import MARGIN

# A framework whose product is below this share of the limit is named.
LOW_SHARE = 0.8
# Limits that differ by more are of different machines.
TOLERANCE = 0.05
GIGA = 10**9
NUMBERS = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "tf32": "TF32"}
MKL_IS_SLOW = "MKL takes slower kernels on processors of other vendors than Intel, and with --mkl-kernels fast the fast ones"


class Limit(NamedTuple):
    """Floating-point operations a second of the fastest product, its name as in `products` of a record, and those of all, by name."""

    flops_per_second: float
    library: str
    products: dict[str, float]


class SlowProduct(NamedTuple):
    """A framework whose product is far below the limit. `place` is what computes it, and `number` the kind of its numbers.

    `mkl_gain` is that of `mkl_gain` below, and `is_mkl_slow` whether MKL is the cause: as measured, else by the name of the processor.
    """

    framework: str
    flops_per_second: float
    limit: Limit
    place: str
    number: str
    is_mkl_slow: bool
    mkl_gain: float | None

    @property
    def percent(self) -> float:
        """The product over the limit."""
        return 100 * self.flops_per_second / self.limit.flops_per_second


def limits(records: Iterable[Record]) -> dict[Hashable, Limit]:
    """Returns the limit of each machine, and of each way to compute there, from what is measured in any of the records.

    Nothing makes a product faster than it can be, so the fastest counts. The peak of an older record is the product of its own framework.
    """
    return {
        key: Limit(of_machine[fastest], fastest, of_machine)
        for key, of_machine in _products_by(key_of, records).items()
        for fastest in [max(of_machine, key=lambda name: of_machine[name])]
    }


def key_of(record: Record) -> Hashable:
    """Returns what the limit belongs to: a machine, and how it computes."""
    return comparable.machine_of(record), computing(record)


def computing(record: Record) -> Hashable:
    """Returns how a run computes: device, precision and number of threads."""
    gpu = record.environment.gpu
    return comparable.device_of(record), gpu and gpu.model, record.settings.precision, record.settings.threads


def share_of_limit(rate: float | None, records: Sequence[Record], limit_of: dict[Hashable, Limit]) -> float | None:
    """Returns floating-point operations a second of a rank of these runs over their limit; None where either is not known.

    A rank with several GPUs has no peak, and so no share.
    """
    limit = next((limit_of.get(key_of(record)) for record in records if record.peak_flops_per_second), None)
    return rate / limit.flops_per_second if rate and limit else None


def low_shares(records: Sequence[Record]) -> list[str]:
    """Returns a sentence for each framework of the records whose product is far below the limit, with the cause where it is known."""
    return list(map(_sentence, slow_products(records)))


def slow_products(records: Sequence[Record]) -> list[SlowProduct]:
    """Returns each framework of the records whose product is below LOW_SHARE of the limit, or that --mkl-kernels fast makes faster."""
    first_of: dict[Hashable, Record] = {}
    frameworks: dict[Hashable, set[str]] = {}
    for record in records:
        first_of.setdefault(key_of(record), record)
        frameworks.setdefault(key_of(record), set()).add(_framework(record))
    return [
        _slow_product(framework, limit, first_of[key])
        for key, limit in limits(records).items()
        for framework in sorted(frameworks[key] & limit.products.keys())
        if limit.products[framework] < LOW_SHARE * limit.flops_per_second or (framework == "PyTorch" and mkl_pays(limit.products))
    ]


def mkl_gain(products: Mapping[str, float]) -> float | None:
    """Returns how many times as fast PyTorch's product is with --mkl-kernels fast, from products by name; None where it is not measured."""
    return products[FAST_MKL] / products["PyTorch"] if {FAST_MKL, "PyTorch"} <= products.keys() else None


def mkl_pays(products: Mapping[str, float]) -> bool:
    """Returns whether PyTorch's product is measured to be faster with --mkl-kernels fast by more than MARGIN."""
    gain = mkl_gain(products)
    return gain is not None and gain > 1 + MARGIN


def describe(records: Iterable[Record]) -> list[str]:
    """Returns each limit of the records, with its library."""
    texts = (f"{limit.flops_per_second / GIGA:.0f} GFLOP/s ({limit.library})" for limit in limits(records).values())
    return list(dict.fromkeys(texts))


def apart(before: Iterable[Record], after: Iterable[Record]) -> str | None:
    """Returns the products of the fastest library as text where each that both sets of records have is more than TOLERANCE apart.

    The sets are then of different machines, whatever their processors are called; it is None where they need not be.
    """
    old, new = (_products_by(computing, records) for records in (before, after))
    for key in old.keys() & new.keys():
        pairs = {name: (speed, new[key][name]) for name, speed in old[key].items() if name in new[key]}
        if pairs and all(max(pair) > (1 + TOLERANCE) * min(pair) for pair in pairs.values()):
            fastest = max(pairs, key=lambda name: max(pairs[name]))
            texts = " and ".join(f"{speed / GIGA:.0f}" for speed in pairs[fastest])
            return f"products of {fastest} reach {texts} GFLOP/s, more than {100 * TOLERANCE:g} % apart"
    return None


def _products_by(key: Callable[[Record], Hashable], records: Iterable[Record]) -> dict[Hashable, dict[str, float]]:
    """Returns the fastest product of each library, by name, of the records with each key that have any."""
    by_key: dict[Hashable, dict[str, float]] = {}
    for record in records:
        for name, speed in _products_of(record).items():
            fastest = by_key.setdefault(key(record), {})
            fastest[name] = max(speed, fastest.get(name, 0.0))
    return by_key


def _products_of(record: Record) -> dict[str, float]:
    products = {name: product.flops_per_second for name, product in (record.products or {}).items()}
    if record.peak_flops_per_second:
        framework = _framework(record)
        of_run = record.peak_flops_per_second * (record.framework_product_share or 1.0)
        products[framework] = max(of_run, products.get(framework, 0.0))
    return products


def _framework(record: Record) -> str:
    framework = declaration_of(record.backend).framework
    return COMPUTES_BY.get(framework, framework)


def _slow_product(framework: str, limit: Limit, record: Record) -> SlowProduct:
    settings = record.settings
    place = "this GPU" if record.environment.gpu else "this core" if settings.threads == 1 else f"{settings.threads} cores"
    number = NUMBERS.get(settings.precision, settings.precision)
    gain = mkl_gain(limit.products) if framework == "PyTorch" else None
    is_mkl_slow = _is_mkl_slow(framework, record) if gain is None else mkl_pays(limit.products)
    return SlowProduct(framework, limit.products[framework], limit, place, number, is_mkl_slow, gain)


def _sentence(slow: SlowProduct) -> str:
    numbers = f"{slow.flops_per_second / GIGA:.0f} of {slow.limit.flops_per_second / GIGA:.0f} GFLOP/s, {slow.limit.library}"
    reached = f"{slow.framework}'s {slow.number} products reach {slow.percent:.0f} % of {slow.place} ({numbers})"
    if not slow.is_mkl_slow:
        return f"{reached}."
    measured = f", which makes products {slow.mkl_gain:.2f} times as fast, as measured here" if slow.mkl_gain else ""
    return f"{reached}: {MKL_IS_SLOW}{measured}."


def _is_mkl_slow(framework: str, record: Record) -> bool:
    """Returns whether PyTorch multiplies by MKL on a processor of AMD. Older records do not name the library, and its wheels have MKL."""
    product = (record.products or {}).get(framework)
    library = product.library if product else "MKL"
    on_cores = not record.environment.gpu and record.settings.precision != "bf16"
    return framework == "PyTorch" and on_cores and "AMD" in record.environment.cpu and bool(library and library.startswith("MKL"))
