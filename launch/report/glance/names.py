"""Short names of comparisons."""

from collections.abc import Iterable

from launch.report.entries import Comparison


def short_names(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """Returns the workload of each comparison by the comparison's name, or that name where several have one workload."""
    workload_of = {comparison.name: comparison.workload for comparison in comparisons}
    workloads = list(workload_of.values())
    return {name: workload if workloads.count(workload) == 1 else name for name, workload in workload_of.items()}
