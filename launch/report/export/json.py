"""The answer at a glance as JSON, for scripts."""

import json
from typing import Any

from launch.report.glance.answer import Glance, Group, Panel, Standing
from launch.report.glance.causes import Cause
from launch.report.statistics import Ratio


def text(glance: Glance) -> str:
    """Returns the answer as JSON text; what is not known is null."""
    document = {
        "machine": glance.machine,
        "certainty": glance.certainty,
        "comparisons": [_comparison(panel, group) for panel in glance.panels for group in panel.groups],
        "causes": [_cause(cause) for cause in glance.causes],
        "state": glance.state,
        "advice": glance.advice,
        "leaving": glance.leaving,
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _comparison(panel: Panel, group: Group) -> dict[str, Any]:
    """Returns a workload at a size on a machine: which backend reached the target first, which is fastest by seconds per epoch, and the
    ratio of the one after that.
    """
    second = group.second
    return {
        "comparison": panel.name,
        "machine": group.machine,
        "num_ranks": group.num_ranks,
        "target": panel.target,
        "first": group.first and group.first.backend,
        "fastest": group.fastest and group.fastest.backend,
        "second": second and second.backend,
        "ratio": second and second.ratio and second.ratio.value,
        "interval": _interval(second and second.ratio),
        "verdict": second and second.verdict,
        "backends": [_backend(panel, standing) for standing in group.standings],
    }


def _backend(panel: Panel, standing: Standing) -> dict[str, Any]:
    ratio = standing.ratio
    return {
        "backend": standing.backend,
        "time_to_solution_seconds" if panel.has_target else "samples_per_second": standing.value,
        "miss": standing.miss,
        "ratio": ratio and ratio.value,
        "interval": _interval(ratio),
        "num_runs": ratio and min(ratio.num_above, ratio.num_below),
        "verdict": standing.verdict or standing.remark,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    ratios = {name: {"ratio": ratio.value, "interval": _interval(ratio)} for name, ratio in cause.ratios.items()}
    return {"kind": cause.kind, "text": cause.text, "ratios": ratios}


def _interval(ratio: Ratio | None) -> list[float] | None:
    return [ratio.low, ratio.high] if ratio and ratio.low is not None and ratio.high is not None else None
