"""A compiled model trains what a plain one trains, and all of it is compiled before the clock starts; TensorFlow's traces too."""

import pytest

from tests import small_data
from tests.running import train
from tests.test_agreement import disagreement

pytestmark = pytest.mark.matrix

# The made-up evaluation has the size of a training batch, and the real ones are of fewer samples.
SETTINGS = ("--scaling", "strong", "--batch-size", "16", "--evaluation-batch-size", "16", "--last-batch", "pad", "--epochs", "1")
FLOAT64 = ("--precision", "fp64")
# Rounding to DeepSpeed's float32 parameters may go the other way, which training at a gentle rate does not amplify.
GENTLE = ("--learning-rate", "1e-5")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_data.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", autouse=True)
def _nothing_compiled_yet(tmp_path_factory):
    """The ranks of the first run compile the same functions at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "ranks", "workload", "own", "bound"),
    [
        ("ddp", 2, "transformer", FLOAT64, 1e-10),
        ("single", 1, "cnn", FLOAT64, 1e-10),
        ("horovod_torch", 2, "cnn", FLOAT64, 1e-10),
        ("deepspeed_zero", 2, "cnn", (*FLOAT64, *GENTLE), 1e-6),
    ],
)
def test_a_compiled_run_has_the_losses_of_a_plain_one(backend, ranks, workload, own, bound, data, tmp_path):
    arguments = (*SETTINGS, *data[workload], *own)
    _, plain, _ = train(backend, ranks, tmp_path / "plain", *arguments)
    _, compiled, _ = train(backend, ranks, tmp_path / "compiled", *arguments, "--compile", sabotage="compiled_on_the_clock")
    assert disagreement(compiled, plain) < bound
    assert len(compiled["losses"]) >= 30
    assert compiled["in_sync"] is True
    assert compiled["workload_digest"] == plain["workload_digest"]
    assert compiled["accuracies"] == plain["accuracies"]


def test_tensorflow_traces_nothing_for_evaluations_on_the_clock(data, tmp_path):
    status, record, _ = train("horovod_tf", 1, tmp_path, *SETTINGS, *data["transformer"], sabotage="traced_on_the_clock")
    assert (status, record["status"], len(record["accuracies"])) == (0, "ok", 1), record["error"]
