"""Sizes: the same text means the same bytes in every program."""

import pytest

from common import units


@pytest.mark.parametrize(
    "sizes",
    [
        {"80GB": 80e9, "64GiB": 64 * 2**30, "1.5TB": 1.5e12, "512 MiB": 2**29, "7B": 7, "128 B": 128, "2kB": 2000, "8": 8},
        dict.fromkeys(["GB", "-1GB", "1e2GB", "iB", "80iB", "much", ""]),
    ],
)
def test_a_size_has_a_number_and_a_unit_and_any_other_text_is_none(sizes):
    assert {text: units.size_bytes(text) for text in sizes} == sizes
