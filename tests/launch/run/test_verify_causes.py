"""What in a user's file makes several ranks train otherwise than one process is found without training."""

import pytest

from common.model.user_model import UserModel
from launch.run import verify_causes
from tests.support.user_models import BEGINNING, SOUND, TRAPS

CLIPS = "the backward pass changes gradients before they are averaged over the ranks, as where they are clipped"
# Samples of other lengths, which lie one after the other in a batch.
RAGGED = """
def data():
    samples = [((torch.full((index % 3 + 1, 4), float(index)),), index % 3) for index in range(12)]
    return samples, samples

def collate(samples):
    parts = [inputs[0] for inputs, _ in samples]
    return (torch.cat(parts), torch.tensor([len(part) for part in parts])), torch.tensor([label for _, label in samples])

class Net(nn.Linear):
    def forward(self, inputs):
        parts, lengths = inputs
        return torch.stack([part.mean(0) for part in super(Net, self).forward(parts).split(lengths.tolist())])

def model():
    return Net(4, 3)
"""


def model_of(name, folder):
    path = folder / "mine.py"
    path.write_text(BEGINNING + (SOUND | TRAPS)[name])
    return UserModel(str(path), None)


@pytest.mark.parametrize("name", [*SOUND, "batch-norm", "tied-weights", "unused-parameters"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_nothing_is_found_in_sound_models(name, tmp_path):
    model = model_of(name, tmp_path)
    assert (verify_causes.of_ranks(model), verify_causes.of_optimizer(model)) == (None, None)


def test_halves_of_a_batch_are_collated_by_themselves(tmp_path):
    (tmp_path / "mine.py").write_text(BEGINNING + RAGGED)
    assert verify_causes.of_ranks(UserModel(str(tmp_path / "mine.py"), None)) is None


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("hidden-state", "the model keeps scale from step to step, which is no buffer"),
        ("random-layer", "the model draws random numbers in training"),
        ("mixed-samples", "the outputs of a sample depend on the other samples of its batch"),
        ("loss-of-a-batch", "loss() of a batch is not the mean of those of its halves"),
        ("clipping-hook", f"{CLIPS} (hooks of 0.weight, 0.bias, 2.weight, 2.bias); CLIP_NORM clips the averaged gradient"),
        ("clipping-loss", f"{CLIPS} (the model or loss()); CLIP_NORM clips"),
    ],
)
def test_what_ranks_compute_otherwise_is_named(name, cause, tmp_path):
    model = model_of(name, tmp_path)
    assert verify_causes.of_ranks(model).startswith(cause)
    assert verify_causes.of_optimizer(model) is None


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("clipping-optimizer", "optimizer() updates a value by others, as by the norm of a parameter or of all"),
        ("layer-wise-optimizer", "optimizer() updates a value by others, as by the norm of a parameter or of all"),
        ("accumulating-optimizer", "optimizer() leaves the parameters as they are in some steps"),
    ],
)
def test_what_shards_update_otherwise_is_named(name, cause, tmp_path):
    model = model_of(name, tmp_path)
    assert verify_causes.of_optimizer(model).startswith(cause)
    assert verify_causes.of_ranks(model) is None
