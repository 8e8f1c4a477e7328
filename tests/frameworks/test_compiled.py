"""A compiled model has the losses of a plain one; compilation and TensorFlow's tracing are done before the clock starts."""

import pytest

from tests.frameworks.test_agreement import disagreement
from tests.support.running import train, train_in_turn

pytestmark = pytest.mark.matrix

# The warm-up evaluation has the size of a training batch; the real ones have fewer samples.
SETTINGS = ("--scaling", "strong", "--batch-size", "16", "--evaluation-batch-size", "16", "--last-batch", "pad", "--epochs", "1")
FLOAT64 = ("--precision", "fp64")
# DeepSpeed's float32 parameters may round differently, which training at a small learning rate does not amplify.
SMALL_LEARNING_RATE = ("--learning-rate", "1e-5")


@pytest.fixture(scope="module", autouse=True)
def _nothing_compiled_yet(tmp_path_factory):
    """An empty cache: the ranks of the first run compile the same functions at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "workload", "settings", "bound"),
    [
        ("ddp", "transformer", FLOAT64, 1e-10),
        ("horovod_torch", "cnn", FLOAT64, 1e-10),
        ("ddp", "cnn", (*FLOAT64, "--accumulate", "2", "--batch-size", "8"), 1e-10),
        ("deepspeed_zero", "cnn", (*FLOAT64, *SMALL_LEARNING_RATE), 1e-6),
    ],
)
def test_a_compiled_run_has_the_losses_of_a_plain_one(backend, workload, settings, bound, data, tmp_path):
    arguments = (*SETTINGS, *data[False][workload], *settings)
    runs = [("none", *arguments), ("compiled_on_the_clock", *arguments, "--compile")]
    (plain, _), (compiled, _) = train_in_turn(backend, 2, tmp_path, runs)
    assert disagreement(compiled, plain) < bound
    assert len(compiled["losses"]) >= 20
    assert compiled["in_sync"] is True
    assert compiled["workload_digest"] == plain["workload_digest"]
    assert compiled["accuracies"] == plain["accuracies"]


def test_tensorflow_traces_nothing_for_evaluations_on_the_clock(data, tmp_path):
    status, record, _ = train("horovod_tf", 1, tmp_path, *SETTINGS, *data[False]["transformer"], fault="traced_on_the_clock")
    assert (status, record["status"], len(record["accuracies"])) == (0, "ok", 1), record["error"]
