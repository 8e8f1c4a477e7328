"""Whether the answer can be relied on: whether the runs are sound, how their controls are judged, and what to run next."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

import numpy as np

from common.config import CONTROL_DELAY, Control
from common.record.definition import ENDED_BY_JOB, INTERRUPTED, Record
from common.words import listed, ranks_of
from launch.report import environments, table
from launch.report.entries import Comparison, Entry, epoch_ratio, group_of, num_pairs_of
from launch.report.findings import Cells
from launch.report.questions import failed, first
from launch.report.ratio_text import interval, uncertainty
from launch.report.runs import SLOWED_DOWN, Runs
from launch.report.statistics import MARGIN, MIN_RUNS_CONFIDENT, Ratio

QUESTION = "Can it be relied on?"
# A larger deviation of the machine's speed is told.
STEADY_PERCENT = 5.0
# The key of the speeds of each kernel in `machine_noise` of a record, and when it is measured.
KERNELS = ("product_flops_per_second", "copy_bytes_per_second")
TIMES = ("before", "after")
DELAY = f"{100 * CONTROL_DELAY:g} %"
OTHER_SEEDS = "backends have different seeds, which need different numbers of epochs: compare seconds per epoch, not times to solution."
# Nobody repeats a matrix more often.
MAX_REPEATS = 100
NUM_SHOWN_FAILURES = 2
LONGEST_REASON = 120
# What to do about the backends of runs by their status.
NEXT_STEPS = {
    "timeout": "--resume with a longer --time-limit for {}, which reached it",
    "started": "--resume for {}, which did not end",
    "diverged": "a lower --learning-rate for {}, which diverged",
    "failed": "--check, and --resume once the error of {} is mended",
    failed.MISSED: "more --epochs for {}, which missed the target",
}
# Of more backends the fastest are repeated first.
MAX_REPEATED, NUM_REPEATED = 8, 3


def reliability_of(runs: Runs) -> list[str]:
    """Returns the sentences on runs and on their controls, first of controls that were judged wrongly, and the warnings about runs."""
    records = runs.compared
    judged = [judgement for comparison in runs.comparisons for judgement in judgements(comparison, runs.not_compared)]
    return [
        *(judgement.sentence for judgement in judged if judgement.is_warning),
        " ".join([_outcome(records), *_speed(records)]),
        *_failures(failed.failures_of(runs)),
        *_oversubscribed(runs.entries),
        *(judgement.sentence for judgement in judged if not judgement.is_warning),
        *_warnings(runs),
    ]


def _outcome(runs: Sequence[Record]) -> str:
    num_failed = sum(record.status != "ok" for record in runs)
    num_missed = sum(record.status == "ok" and record.reached is False for record in runs)
    have_target = any(record.reached is not None for record in runs)
    sync = ", in sync" if all(record.in_sync for record in runs if record.status == "ok") else ""
    if not num_failed and not num_missed:
        return f"All {len(runs)} runs {'reached the target' if have_target else 'completed'}{sync}."
    ended = [f"{num_failed} did not complete"] * bool(num_failed) + [f"{num_missed} missed the target"] * bool(num_missed)
    return f"Of {len(runs)} runs {listed(ended)}."


def _speed(records: Iterable[Record]) -> list[str]:
    """Returns the sentence on beside how many runs the machine was as fast as in the median, and when least; none if not measured.

    The deviation is from the median of a kernel in a matrix at a number of ranks.
    """
    speeds_of: dict[tuple[str, int, str], list[tuple[float, str, str | None]]] = {}
    for record in records:
        for kernel in KERNELS if record.machine_noise else ():
            speeds = zip(getattr(record.machine_noise, kernel), TIMES, strict=False)
            of_run = [(speed, when, record.settings.run_id) for speed, when in speeds if speed]
            speeds_of.setdefault((table.matrix(record), record.num_ranks, kernel), []).extend(of_run)
    deviations = [
        (100 * (speed / float(np.median([speed for speed, *_ in of_kernel])) - 1), when, run)
        for of_kernel in speeds_of.values()
        for speed, when, run in of_kernel
    ]
    if not deviations:
        return []
    steady = f"The machine's speed was within {STEADY_PERCENT:g} % of its median"
    num_runs, deviating = len({run for *_, run in deviations}), {run for percent, _, run in deviations if abs(percent) > STEADY_PERCENT}
    if not deviating:
        return [f"{steady} before and after every run."]
    percent, when, run = max(deviations, key=lambda deviation: abs(deviation[0]))
    largest = f"{abs(percent):.0f} % {'above' if percent > 0 else 'below'} it {when} {run}"
    return [f"{steady} beside {num_runs - len(deviating)} of {num_runs} runs, and {largest}."]


def _failures(rows: Iterable[Cells]) -> list[str]:
    """Returns a line for each run that failed and each file that is no record, the first ones only. Missed targets stand above."""
    failures = [row for row in rows if row["status"] != failed.MISSED]
    lines = [
        f"{row['run']}: {row['status']}, {textwrap.shorten(str(row['reason']), LONGEST_REASON, placeholder=' ...')}"
        for row in failures[:NUM_SHOWN_FAILURES]
    ]
    num_further = len(failures) - NUM_SHOWN_FAILURES
    return [*lines, *([f"and {num_further} more runs failed."] if num_further > 0 else [])]


def _oversubscribed(entries: Sequence[Entry]) -> list[str]:
    """Returns the sentence on sizes with more ranks than cores; none where no size has."""
    shared = sorted({entry.num_ranks for entry in entries if entry.oversubscribed})
    if not shared:
        return []
    if all(entry.oversubscribed for entry in entries):
        return ["More ranks than cores: not a scaling measurement."]
    return [f"{listed(list(map(str, shared)))} ranks are more than the cores, so not compared here: --full."]


def _warnings(runs: Runs) -> list[str]:
    """Returns a sentence on the runs that are left out, and on each reason why records may not be comparable."""
    texts = [f"{len(runs.traced)} of the runs were {SLOWED_DOWN}, and are left out."] if runs.traced else []
    for comparison in runs.comparisons:
        for size in comparison.sizes:
            if len({frozenset(record.seed for record in entry.records) for entry in comparison.of_size(size)}) > 1:
                texts.append(f"{comparison.name}, {ranks_of(size)}: {OTHER_SEEDS}")
        for name, values in environments.values_of(comparison.records).items():
            if len(values) > 1:
                texts.append(f"{comparison.name}: records differ in {name}: {', '.join(values)}.")
    return texts


class Judgement(NamedTuple):
    """A sentence on how the controls of a backend at a size were judged; `is_warning`: a control was judged as what it is not."""

    is_warning: bool
    sentence: str


def judgements(comparison: Comparison, records: Iterable[Record]) -> list[Judgement]:
    """Judges the controls of the entries of a comparison, which are among the records."""
    controls = [record for record in records if record.settings.control and group_of(record) == comparison[:3]]
    controlled = sorted({(record.num_ranks, record.backend) for record in controls})
    return [
        _judgement(f"{comparison.name}, {ranks_of(num_ranks)}, {backend}", *(
            _ratio_of_control(control, controls, entry, comparison) for control in get_args(Control)
        ))
        for num_ranks, backend in controlled
        if (entry := comparison.entry(backend, num_ranks))
    ]  # fmt: skip


def _ratio_of_control(control: Control, controls: Iterable[Record], entry: Entry, comparison: Comparison) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of a control to those of its entry; None where either has none.

    Its interval has the noise of these two alone, and is one of as many as the entries of this size have.
    """
    of_entry = [record for record in controls if (record.backend, record.num_ranks) == (entry.backend, entry.num_ranks)]
    of_control = Entry(entry.backend, entry.num_ranks, [record for record in of_entry if record.settings.control == control])
    compared = [result.entry for result in first.results_of(comparison.of_size(entry.num_ranks))]
    return epoch_ratio(of_control, entry, [], num_pairs=num_pairs_of(compared))


def _judgement(at: str, copy: Ratio | None, delayed: Ratio | None) -> Judgement:
    """Judges the ratios of the seconds per epoch of the controls to those of their backend; None: there is none."""
    copy_differs = bool(copy and copy.verdict)
    # A delayed one that seems faster is not found.
    is_found = None if delayed is None or delayed.verdict is None else delayed.verdict and delayed.value > 1
    of_copy, of_delayed = _control(copy), _control(delayed)
    if copy_differs:
        of_copy += ", so do not rely on these verdicts"
    if is_found:
        of_delayed = "found"
    elif is_found is False:
        of_delayed = f"not found, {of_delayed}, so these verdicts may miss differences of {DELAY}"
    sentence = f"Controls of {at}: copy: {of_copy}; {DELAY} slower: {of_delayed}."
    return Judgement(copy_differs or is_found is False, sentence)


def _control(ratio: Ratio | None) -> str:
    """Returns a ratio with its interval, or why it gives no verdict."""
    if ratio is None:
        return "not measured"
    return f"{ratio.value:.2f} ({interval(ratio) if ratio.verdict is not None else f'no verdict, {uncertainty(ratio)}'})"


def advice_on(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns what to run next, each as a part of one sentence: what mends the runs without a result, and else what the answer lacks."""
    entries = [entry for comparison in comparisons for entry in comparison.entries]
    return _mending(entries) or [*_repeats(comparisons), *_kernels(entries)]


def _mending(entries: Iterable[Entry]) -> list[str]:
    """Returns what to do about the backends of runs without a result, by how these ended."""
    backends_of: dict[str, dict[str, None]] = {}
    for entry in entries:
        for record in entry.records:
            status = failed.MISSED if record.status == "ok" and record.reached is False else record.status
            status = "started" if record.error in (INTERRUPTED, ENDED_BY_JOB) else status
            backends_of.setdefault(status, {})[entry.backend] = None
    return [step.format(listed(list(backends_of[status]))) for status, step in NEXT_STEPS.items() if status in backends_of]


def _repeats(comparisons: Iterable[Comparison]) -> list[str]:
    """Returns how many repeats give a verdict, or decide between backends that are not told apart."""
    by_size = [comparison.by_size() for comparison in comparisons]
    results = [result for sizes in by_size for entries in sizes.values() for result in first.results_of(entries)]
    if not results:
        return []
    if min(len(result.entry.records) for result in results) < MIN_RUNS_CONFIDENT:
        largest = [first.comparable(sizes[max(sizes)]) for sizes in by_size if sizes]
        fastest = dict.fromkeys(entry.backend for compared in largest for entry in compared[:NUM_REPEATED])
        chosen = f" --backends {','.join(fastest)}" if max(map(len, largest)) > MAX_REPEATED else ""
        return [f"--repeats {MIN_RUNS_CONFIDENT}{chosen} for a verdict"]
    ratios = [result.ratio for result in results if result.ratio and result.is_comparable]
    undecided = [ratio for ratio in ratios if ratio.verdict is False and not ratio.is_equal]
    num_repeats = max(map(_expected_repeats, undecided), default=0)
    return [f"--repeats {num_repeats} to find differences of {100 * MARGIN:g} %"] if 0 < num_repeats <= MAX_REPEATS else []


def _expected_repeats(ratio: Ratio) -> int:
    """Returns the number of repeats after which the interval of a ratio is within MARGIN: its width falls with their square root."""
    half_width = (ratio.high or ratio.value) / ratio.value - 1
    return max(ratio.num_below, math.ceil(ratio.num_below * (half_width / MARGIN) ** 2))


def _kernels(entries: Iterable[Entry]) -> list[str]:
    """Returns the setting that gives PyTorch faster products, where MKL's slower kernels are the cause of a difference."""
    records = [record for entry in entries for record in entry.ok]
    return ["--mkl-kernels fast for PyTorch's products"] if any(slow.is_mkl_slow for slow in environments.slow_products(records)) else []
