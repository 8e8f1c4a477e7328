"""Sizes: the same text means the same bytes in every program."""

import pytest

from common import units


@pytest.mark.parametrize(
    ("kilo", "sizes"),
    [
        (1000, {"80GB": 80e9, "64GiB": 64 * 2**30, "1.5TB": 1.5e12, "512 MiB": 2**29, "7B": 7, "128 B": 128, "2kB": 2000, "8": 8}),
        (1024, {"64K": 2**16, "64k": 2**16, "1M": 2**20, "1MB": 2**20, "2GiB": 2**31}),
        (1000, dict.fromkeys(["GB", "-1GB", "1e2GB", "iB", "80iB", "much", ""])),
    ],
)
def test_a_size_has_a_number_and_a_unit_and_any_other_text_is_none(kilo, sizes):
    assert {text: units.size_bytes(text, kilo) for text in sizes} == sizes


@pytest.mark.parametrize(("size", "text"), [(8, "8 B"), (1000, "1000 B"), (2**10, "1 KiB"), (3 * 2**20, "3 MiB"), (2**31, "2 GiB")])
def test_a_size_is_written_in_the_largest_unit_in_which_it_is_whole(size, text):
    assert units.whole_text(size) == text
