"""GPUs for computing that no library here uses, from what Linux shows of a node."""

import pytest

from common.process import unused_gpus
from common.process.unused_gpus import Card, cards, expect_none, problem
from tests.support.mistakes import expect_refused, refused

MI250X, VEGA_OF_A_LAPTOP = Card(0x1002, 0x7408, 68_700_000_000), Card(0x1002, 0x1638, 536_870_912)
MAX_1550, IRIS_XE, H100 = Card(0x8086, 0x0BD5, 0), Card(0x8086, 0x9A49, 0), Card(0x10DE, 0x2330, 0)


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([], None),
        ([H100] * 4, None),
        ([IRIS_XE], None),
        ([VEGA_OF_A_LAPTOP], None),
        ([MI250X] * 8, "this node has 8 AMD GPUs, which only PyTorch for ROCm uses; "),
        ([MAX_1550] * 6, "this node has 6 Intel GPUs, which Tandem does not use; "),
        ([IRIS_XE, MI250X], "this node has an AMD GPU, which"),
    ],
)
def test_gpus_for_computing_are_named_and_those_of_a_laptop_are_not(gpus, text):
    shown = problem(gpus)
    assert shown is None if text is None else shown.startswith(text) and shown.endswith("give --device cpu to train on its cores")
    if text is None:
        expect_none(gpus)
    else:
        with refused(text):
            expect_none(gpus)


def test_a_single_run_does_not_train_beside_them_unless_it_is_told_to(monkeypatch, tmp_path):
    monkeypatch.setattr(unused_gpus, "cards", lambda: [MI250X] * 8)
    expect_refused(
        "this node has 8 AMD GPUs, which only PyTorch for ROCm uses; give --device cpu", "frameworks.single", "--results", tmp_path
    )
    expect_refused("mnist", "frameworks.single", "--results", tmp_path, "--device", "cpu", "--dataset", "mnist", "--data-dir", tmp_path)


def test_they_are_read_from_linux(tmp_path):
    for number, card in enumerate([MI250X, MAX_1550], 128):
        folder = tmp_path / f"renderD{number}" / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{card.vendor:#06x}\n")
        (folder / "device").write_text(f"{card.model:#06x}\n")
    (tmp_path / "renderD128/device/mem_info_vram_total").write_text(f"{MI250X.vram_bytes}\n")
    assert cards(tmp_path) == [MI250X, MAX_1550]
