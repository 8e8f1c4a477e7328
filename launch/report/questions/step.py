"""Where the time of a step goes, by its breakdown."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import measures, statistics
from launch.report.entries import Comparison, Entry
from launch.report.findings import MB, MILLI, Cells, Findings, in_unit
from launch.report.ratio_text import span
from launch.report.statistics import Difference

BUBBLE = {"num_stages", "num_microbatches", "bubble_fraction", "bubble_fraction_in_theory"}
QUESTION = "Where does the time of a step go?"
OVERHEAD, EXPOSED = "overhead at 1 rank", "exposed communication"
PARTS = ("data wait", "compute", OVERHEAD, EXPOSED)
BELOW_NOISE = "below the noise"
# The column with the seconds of OVERHEAD and EXPOSED together.
ADDED = "breakdown_communication_exposed_seconds"


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison with a step breakdown."""
    broken_down = [entry for entry in comparison.entries if parts(comparison, entry)]
    bubbles = [_bubble_row(entry, bubbles) for entry in broken_down if (bubbles := _bubbles(entry))]
    tables = [
        *filled(comparison.name, [_row(comparison, entry) for entry in broken_down]),
        *filled(f"Pipeline bubble: {comparison.name}", bubbles),
    ]
    return Findings(_sentences(comparison, [entry for entry in broken_down if not entry.oversubscribed]), tables)


def _row(comparison: Comparison, entry: Entry) -> Cells:
    def trimmed_mean(column: str, unit: float) -> float | None:
        return in_unit(entry.trimmed_mean(column), unit)

    return (
        entry.cells
        | {
            "step in training (ms)": trimmed_mean("timed_step_seconds", MILLI),
            "step in breakdown (ms)": in_unit(entry.mean("breakdown_step_seconds"), MILLI),
        }
        | {f"{name} (ms)": value for name, value in parts(comparison, entry).items()}
        | ({f"{EXPOSED} (ms)": BELOW_NOISE} if noise_above_exposed(comparison, entry) is not None else {})
        | {
            "overhead, 95 % interval (ms)": _interval(_overhead(comparison, entry)),
            "exposed, 95 % interval (ms)": _interval(_exposed(comparison, entry)),
            "communication (ms)": in_unit(entry.mean("breakdown_communication_seconds"), MILLI),
            "sent (MB)": trimmed_mean("breakdown_sent_bytes", MB),
            "bus bandwidth (MB/s)": trimmed_mean("step_breakdown_bus_bytes_per_second", MB),
            "bus bandwidth, plain all-reduce (MB/s)": trimmed_mean("step_breakdown_plain_bus_bytes_per_second", MB),
        }
    )


def _bubble_row(entry: Entry, bubbles: Sequence[dict[str, Any]]) -> Cells:
    """Returns the row of a pipeline, by the bubbles of its runs, as frameworks/shared/pytorch/pipeline_stages.py measured them."""
    return entry.cells | {
        "stages of a model": bubbles[0]["num_stages"],
        "micro-batches": bubbles[0]["num_microbatches"],
        "bubble, measured (%)": statistics.trimmed_mean(100 * bubble["bubble_fraction"] for bubble in bubbles),
        "bubble, in theory (%)": 100 * bubbles[0]["bubble_fraction_in_theory"],
    }


def _interval(seconds: Difference | None) -> str | None:
    """Returns the interval of a difference of seconds in milliseconds as text; None where it has none."""
    if seconds is None or seconds.low is None or seconds.high is None:
        return None
    return f"{seconds.low / MILLI:.1f} to {seconds.high / MILLI:.1f}"


def parts(comparison: Comparison, entry: Entry) -> dict[str, float | None]:
    """Returns the milliseconds of each of PARTS in an entry's step; empty without a step breakdown.

    They are means over the ranks and the runs, so that they add up to the step.
    """
    exposed = _exposed(comparison, entry)
    if exposed is None:
        return {}
    overhead = _overhead(comparison, entry)
    waited, computed = entry.mean("breakdown_data_wait_seconds"), entry.mean("breakdown_compute_seconds")
    seconds = [waited, computed, overhead and overhead.value, exposed.value]
    return {name: in_unit(value, MILLI) for name, value in zip(PARTS, seconds, strict=True)}


def _overhead(comparison: Comparison, entry: Entry) -> Difference | None:
    """Returns OVERHEAD, what a backend adds to a step at 1 rank, where nothing is exchanged; None where it did not run at 1 rank."""
    single_rank = comparison.entry(entry.backend, 1)
    return _from_zero(single_rank.values(ADDED).values()) if single_rank else None


def _exposed(comparison: Comparison, entry: Entry) -> Difference | None:
    """Returns EXPOSED, what more ranks add to OVERHEAD, and all that a backend adds where it did not run at 1 rank.

    It is None without a step breakdown. It has an interval only at more than 1 rank, and where OVERHEAD is known.
    """
    added, single_rank = entry.values(ADDED), comparison.entry(entry.backend, 1)
    added_at_1_rank = single_rank.values(ADDED) if single_rank else {}
    if added and added_at_1_rank:
        exposed = statistics.difference(*measures.sides(added, added_at_1_rank))
        return exposed if entry.num_ranks > 1 else exposed._replace(low=None, high=None)
    exposed = _from_zero(added.values())
    return exposed and exposed._replace(low=None, high=None)


def _from_zero(seconds: Collection[float]) -> Difference | None:
    """Returns the mean of seconds as a difference; None without any."""
    return statistics.difference(list(seconds), [0.0] * len(seconds), paired=True) if seconds else None


def exposed_percent(comparison: Comparison, entry: Entry) -> float | None:
    """Returns EXPOSED as a share of an entry's step; None without a step breakdown, and where its interval has 0 or there is none."""
    exposed = _exposed(comparison, entry)
    if exposed is None or exposed.low is None or exposed.low <= 0:
        return None
    return 100 * exposed.value / MILLI / sum(statistics.present(parts(comparison, entry).values()))


def noise_above_exposed(comparison: Comparison, entry: Entry) -> float | None:
    """Returns the noise of EXPOSED in milliseconds, half of its interval, where EXPOSED is not above it; None where it is, and at 1 rank.

    Where EXPOSED is below 0 and has no interval, the noise is 0.
    """
    exposed = _exposed(comparison, entry) if entry.num_ranks > 1 else None
    if exposed is None or (exposed.value if exposed.low is None else exposed.low) > 0:
        return None
    return 0.0 if exposed.low is None or exposed.high is None else 1000 * (exposed.high - exposed.low) / 2


def below_noise(noises: Collection[float]) -> str:
    """Returns in words that EXPOSED is below these noises."""
    return f"{BELOW_NOISE} (±{max(noises):.1f} ms)" if max(noises) else BELOW_NOISE


def _bubbles(entry: Entry) -> list[dict[str, Any]]:
    """Returns the bubbles of an entry's runs; nothing unless it is a pipeline."""
    breakdowns = statistics.present(record.step_breakdown for record in entry.ok)
    return [dict(breakdown.library) for breakdown in breakdowns if breakdown.library.keys() >= BUBBLE]


def _sentences(comparison: Comparison, with_cores: Iterable[Entry]) -> list[str]:
    """Returns a sentence on exposed communication at each size from 2 ranks on."""
    by_size: dict[int, list[Entry]] = {}
    for entry in with_cores:
        if entry.num_ranks > 1:
            by_size.setdefault(entry.num_ranks, []).append(entry)
    return [f"{comparison.name}, {ranks_of(size)}: {EXPOSED} {_describe_exposed(comparison, by_size[size])}." for size in sorted(by_size)]


def _describe_exposed(comparison: Comparison, of_size: Iterable[Entry]) -> str:
    """Describes its share of a step, or as measured where there is no interval, and names the backends whose noise is larger."""
    of_size = list(of_size)
    shares = {entry.backend: share for entry in of_size if (share := exposed_percent(comparison, entry)) is not None}
    noises = {entry.backend: noise for entry in of_size if (noise := noise_above_exposed(comparison, entry)) is not None}
    measured = {entry.backend: exposed for entry in of_size if (exposed := parts(comparison, entry).get(EXPOSED)) is not None}
    texts = [f"is {below_noise(noises.values())} with {listed(list(noises))}"] if noises else []
    if shares:
        return ", and ".join([f"is {span(shares, '{:.0f} %')} of a step", *texts])
    above = {backend: exposed for backend, exposed in measured.items() if backend not in noises}
    return ", and ".join([*([f"is {span(above, '{:.1f} ms')} of a step as measured, without an interval"] if above else []), *texts])
