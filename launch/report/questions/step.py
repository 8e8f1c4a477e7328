"""Where the time of a step goes, by its breakdown; and that in the MPI of traced runs."""

from collections.abc import Collection, Iterable
from operator import attrgetter

from common.record.definition import Record
from common.terminal import Table, filled
from common.words import listed, ranks_of
from launch.report import statistics
from launch.report.entries import Comparison, Entry, sides
from launch.report.findings import MB, MILLI, Cells, Findings, in_unit
from launch.report.ratio_text import span
from launch.report.runs import Runs
from launch.report.statistics import Difference

QUESTION = "Where does the time of a step go?"
OVERHEAD, EXPOSED = "overhead at 1 rank", "exposed communication"
PARTS = ("data wait", "compute", OVERHEAD, EXPOSED)
BELOW_NOISE = "below the noise"
# The column with the seconds of OVERHEAD and EXPOSED together.
ADDED = "breakdown_communication_exposed_seconds"


def answer(runs: Runs) -> Findings:
    """Answers for the entries with a step breakdown, and for rank 0 of the traced runs with an MPI profile."""
    sentences, tables = [], []
    for comparison in runs.comparisons:
        for size, entries in comparison.by_size().items():
            if text := describe_exposed(comparison, entries):
                sentences.append(f"{comparison.name}, {ranks_of(size)}: {EXPOSED} {text}.")
        tables += filled(comparison.name, [_row(comparison, entry) for entry in comparison.entries if parts(comparison, entry)])
    return Findings(sentences, [*tables, *_in_mpi(runs.traced)])


def _in_mpi(traced: Iterable[Record]) -> list[Table]:
    """Returns the table of control messages, such as Horovod's, and payload; of a library that does not separate them only the total."""
    rows = []
    for record in sorted(traced, key=attrgetter("workload", "num_ranks", "backend", "repeat")):
        if record.mpi_profile and (rank_0 := record.mpi_profile.ranks.get("0")):
            kinds = rank_0.kinds
            rows.append(
                {
                    "workload": record.workload, "backend": record.backend, "ranks": record.num_ranks,
                    "in MPI (s)": rank_0.communication_seconds,
                    "control calls": kinds and kinds.control.num_calls, "control (s)": kinds and kinds.control.seconds,
                    "payload calls": kinds and kinds.payload.num_calls, "payload (s)": kinds and kinds.payload.seconds,
                    "payload (MB)": kinds and kinds.payload.size_bytes / MB,
                    "payload bandwidth (MB/s)": in_unit(rank_0.payload_bytes_per_second, MB),
                }
            )  # fmt: skip
    return filled("Rank 0 of the traced runs", rows)


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
        }
    )


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
        exposed = statistics.difference(*sides(added, added_at_1_rank))
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


def describe_exposed(comparison: Comparison, of_size: Iterable[Entry]) -> str:
    """Describes EXPOSED of the entries of a size as its share of a step, or as measured where there is no interval.

    Backends whose noise is larger are named. The text is empty where nothing is measured, and at 1 rank.
    """
    measured = [entry for entry in of_size if entry.num_ranks > 1 and parts(comparison, entry)]
    noises = {entry.backend: noise for entry in measured if (noise := noise_above_exposed(comparison, entry)) is not None}
    shares = {entry.backend: share for entry in measured if (share := exposed_percent(comparison, entry)) is not None}
    above = {entry.backend: parts(comparison, entry)[EXPOSED] or 0.0 for entry in measured if entry.backend not in noises}
    texts = []
    if shares:
        texts.append(f"is {span(shares, '{:.0f} %')} of a step")
    elif above:
        texts.append(f"is {span(above, '{:.1f} ms')} of a step as measured, without an interval")
    if noises:
        noise = f" (±{max(noises.values()):.1f} ms)" if max(noises.values()) else ""
        texts.append(f"is {BELOW_NOISE}{noise} with {listed(list(noises))}")
    return ", and ".join(texts)
