"""Short names of comparisons."""

from collections.abc import Iterable

from launch.report.entries import Comparison


def short_names(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """Returns the model of each comparison by the comparison's name, or that name where several have one model."""
    model_of = {comparison.name: comparison.model for comparison in comparisons}
    models = list(model_of.values())
    return {name: model if models.count(model) == 1 else name for name, model in model_of.items()}
