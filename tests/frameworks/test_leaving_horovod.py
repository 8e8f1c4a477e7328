"""What frameworks/HOROVOD.md says of leaving Horovod: each row of its table gives equal numbers, and Keras 3 trains alone."""

import re

import pytest

from tests.support.running import BIN, ROOT, completed

pytestmark = pytest.mark.matrix

TABLE = re.search(r"^\| Horovod \|.*\n(?:\|.*\n)+", (ROOT / "frameworks/HOROVOD.md").read_text(), re.MULTILINE)


def rows():
    """Returns the first and the last cell of each row of the table."""
    cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in TABLE[0].splitlines()[2:]]
    return {first: last for first, *_, last in cells}


def test_each_row_of_the_table_gives_equal_numbers_where_it_says_so(tmp_path):
    process = completed(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.leaving_horovod", tmp_path / "store")
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout.splitlines() == [re.sub("`", "", call) for call, check in rows().items() if check == "equal"]


@pytest.mark.long
@pytest.mark.parametrize(("legacy", "message"), [("1", None), ("0", "the ranks have different parameters after training: rank 1")])
def test_horovods_optimizer_trains_each_rank_alone_under_keras_3(legacy, message):
    program = (BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.horovod_under_keras")
    process = completed(*program, variables={"TF_USE_LEGACY_KERAS": legacy, "CUDA_VISIBLE_DEVICES": ""})
    assert (process.returncode == 0) == (message is None), process.stderr[-2000:]
    assert message is None or message in process.stderr
