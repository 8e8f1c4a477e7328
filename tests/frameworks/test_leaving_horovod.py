"""What frameworks/HOROVOD.md says of leaving Horovod: each row of its table gives equal numbers, and Keras 3 trains alone."""

import re

import pytest

from tests.support.running import BIN, ROOT, completed

pytestmark = pytest.mark.matrix

TABLE = re.search(r"^\| Horovod \|.*\n(?:\|.*\n)+", (ROOT / "frameworks/HOROVOD.md").read_text(), re.MULTILINE)


CELLS = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in TABLE[0].splitlines()[2:]]
EQUAL = [re.sub("`", "", call) for call, _, check in CELLS if check == "equal"]
CALLBACKS = [call for call in EQUAL if call.endswith("Callback")]
OF_LAUNCHERS = ["horovodrun -np 2", "HOROVOD_FUSION_THRESHOLD=0", "HOROVOD_TIMELINE", "horovod.elastic"]


def printed_by(*command, **variables):
    """What the ranks of a command print, started where a site has a proxy."""
    process = completed(*command, variables={"http_proxy": "http://127.0.0.1:9"} | variables)
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout


def test_each_call_of_the_table_gives_equal_numbers(tmp_path):
    printed = printed_by(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.leaving_horovod", tmp_path / "store")
    assert [*printed.splitlines(), *CALLBACKS, *OF_LAUNCHERS] == EQUAL


# It shows what libraries do, and changes with them.
@pytest.mark.long
def test_each_callback_of_keras_gives_equal_numbers():
    printed = printed_by(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.leaving_horovod_keras")
    assert printed.splitlines() == CALLBACKS


@pytest.mark.long
def test_each_launcher_and_its_variables_give_equal_numbers(tmp_path):
    program = ("-m", "tests.support.leaving_horovodrun")
    horovodrun = (BIN / "horovodrun", "-np", 2, "--gloo", BIN / "python")
    variables = {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}
    by_horovod = printed_by(*horovodrun, *program, "horovod", tmp_path, **variables)
    torchrun = (BIN / "torchrun", "--nproc-per-node", 2, "--max-restarts", 1)
    by_ddp = printed_by(*torchrun, *program, "ddp", tmp_path, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    # horovodrun puts the rank before the line.
    numbers = [[float(word) for word in text.split(":")[-1].split()] for text in (by_horovod, by_ddp)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)
    # A step has two all-reduces, of weight and bias.
    assert numbers[0][-1] == 2


@pytest.mark.long
@pytest.mark.parametrize(("legacy", "message"), [("1", None), ("0", "the ranks have different parameters after training: rank 1")])
def test_horovods_optimizer_trains_each_rank_alone_under_keras_3(legacy, message):
    program = (BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.horovod_under_keras")
    process = completed(*program, variables={"TF_USE_LEGACY_KERAS": legacy, "CUDA_VISIBLE_DEVICES": ""})
    assert (process.returncode == 0) == (message is None), process.stderr[-2000:]
    assert message is None or message in process.stderr
