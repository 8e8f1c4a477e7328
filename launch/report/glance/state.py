"""Whether the runs of a report are sound: complete, at their target, in sync, and on a machine of steady speed."""

import textwrap
from collections.abc import Sequence

from common.record.definition import Record
from common.words import listed
from launch.report import noise
from launch.report.questions import controls, cost, failed
from launch.report.summary import Answer

NUM_SHOWN_FAILURES = 2
LONGEST_REASON = 120


def sentences(report: Answer) -> list[str]:
    """Returns the sentences on the runs of a report and on its controls, and the warnings about them."""
    return [
        *controls.warnings(report.controls),
        " ".join([_outcome(report.runs), *noise.sentences(report.runs), *_startup(report)]),
        *_failures(report),
        *_oversubscribed(report),
        *controls.sentences(report.controls),
        *report.warnings,
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


def _startup(report: Answer) -> list[str]:
    """Returns the span of the seconds from launch to the first step."""
    stages_of = [cost.stages(entry) for comparison in report.comparisons for entry in comparison.entries if entry.ok]
    seconds = [sum(stages[stage] or 0.0 for stage in cost.STARTUP) for stages in stages_of]
    if not seconds:
        return []
    low, high = f"{min(seconds):.0f}", f"{max(seconds):.0f}"
    return [f"Start-up, not counted above: {low if low == high else f'{low} to {high}'} s."]


def _failures(report: Answer) -> list[str]:
    """Returns a line for each run that failed and each file that is no record, the first ones only. Missed targets stand above."""
    failures = [failure for failure in report.failures if failure.status != failed.MISSED]
    lines = [
        f"{failure.name}: {failure.status}, {textwrap.shorten(failure.reason, LONGEST_REASON, placeholder=' ...')}"
        for failure in failures[:NUM_SHOWN_FAILURES]
    ]
    num_further = len(failures) - NUM_SHOWN_FAILURES
    return [*lines, *([f"and {num_further} more, in --full"] if num_further > 0 else [])]


def _oversubscribed(report: Answer) -> list[str]:
    """Returns the sentence on sizes with more ranks than cores; empty where all are or none is."""
    all_entries = [entry for comparison in report.comparisons for entry in comparison.entries]
    shared = sorted({entry.num_ranks for entry in all_entries if entry.oversubscribed})
    if not shared or all(entry.oversubscribed for entry in all_entries):
        return ["More ranks than cores: not a scaling measurement."] if shared else []
    return [f"{listed(list(map(str, shared)))} ranks are more than the cores, so not compared here: --full."]
