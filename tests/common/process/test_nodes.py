"""Which node this is."""

import socket

import numpy as np

from common.process import nodes


def test_the_number_of_a_node_is_one_that_float64_holds_and_does_not_change():
    number = nodes.number()
    assert int(np.float64(number)) == number == nodes.number()


def test_the_name_is_that_of_the_boot_or_else_of_the_host(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "BOOT_ID", tmp_path / "boot_id")
    assert nodes.name() == socket.gethostname()
    (tmp_path / "boot_id").write_text("one-boot\n")
    assert nodes.name() == "one-boot"
