"""The answer as JSON, for scripts."""

import json
from typing import Any

from launch.report.answer import Answer, Cause, Ranking
from launch.report.questions.first import Group, Result
from launch.report.statistics import Ratio


def text(machine: str, answer: Answer) -> str:
    """Returns the answer as JSON text; what is not known is null."""
    document = {
        "machine": machine,
        "certainty": answer.certainty,
        "comparisons": [_comparison(ranking, group) for ranking in answer.rankings for group in ranking.groups],
        "causes_at": answer.causes_at,
        "causes": [_cause(cause) for cause in answer.causes],
        "reliability": answer.reliability,
        "advice": answer.advice,
        "migration": answer.migration,
        "quotation": answer.quotation,
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _comparison(ranking: Ranking, group: Group) -> dict[str, Any]:
    """Returns a workload at a size on a machine: which backend reached the target first, which is fastest by seconds per epoch, and the
    ratio of the one after that.
    """
    second = group.second
    return {
        "comparison": ranking.name,
        "machine": group.machine,
        "num_ranks": group.num_ranks,
        "target": ranking.target,
        "first": group.first and group.first.backend,
        "fastest": group.fastest and group.fastest.backend,
        "second": second and second.backend,
        "ratio": second and second.ratio and second.ratio.value,
        "interval": _interval(second and second.ratio),
        "verdict": second and second.verdict,
        "backends": [_backend(ranking, result) for result in group.results],
    }


def _backend(ranking: Ranking, result: Result) -> dict[str, Any]:
    ratio = result.ratio
    return {
        "backend": result.backend,
        "time_to_solution_seconds" if ranking.has_target else "samples_per_second": result.value,
        "startup_seconds": result.startup_seconds,
        "miss": result.miss,
        "epoch_seconds": result.epoch_seconds if result.miss else None,
        "ratio": ratio and ratio.value,
        "interval": _interval(ratio),
        "num_runs": ratio and min(ratio.num_above, ratio.num_below),
        "verdict": result.verdict,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    ratios = {name: {"ratio": ratio.value, "interval": _interval(ratio)} for name, ratio in cause.ratios.items()}
    return {"kind": cause.kind, "text": cause.text, "ratios": ratios}


def _interval(ratio: Ratio | None) -> list[float] | None:
    return [ratio.low, ratio.high] if ratio and ratio.low is not None and ratio.high is not None else None
