"""What a run computes from the outputs of its model: the loss, and what the evaluation counts."""

from common.config import Settings
from common.model.own_model import OwnModel
from common.workloads import workload_of
from frameworks.shared.pytorch.models.own import OwnCriterion
from frameworks.shared.pytorch.steps import CROSS_ENTROPY, Criterion


def criterion_of(settings: Settings) -> Criterion:
    """Returns the Criterion of the settings' model."""
    model = workload_of(settings).model
    return OwnCriterion(model) if isinstance(model, OwnModel) else CROSS_ENTROPY
