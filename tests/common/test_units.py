"""Sizes: the same text means the same bytes in every program."""

import pytest

from common import units


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GB", 80e9), ("64GiB", 64 * 2**30), ("1.5TB", 1.5e12), ("512 MiB", 2**29), ("7B", 7), ("128 B", 128), ("2kB", 2000), ("8", 8)],
)
def test_a_size_has_a_number_and_a_unit(text, size):
    assert units.size_bytes(text) == size


@pytest.mark.parametrize(("text", "size"), [("64K", 2**16), ("64k", 2**16), ("1M", 2**20), ("1MB", 2**20), ("2GiB", 2**31)])
def test_where_a_kilo_is_1024_so_are_its_powers(text, size):
    assert units.size_bytes(text, kilo=1024) == size


@pytest.mark.parametrize("text", ["GB", "-1GB", "1e2GB", "iB", "80iB", "much", ""])
def test_any_other_text_is_none(text):
    assert units.size_bytes(text) is None


@pytest.mark.parametrize(("size", "text"), [(8, "8 B"), (1000, "1000 B"), (2**10, "1 KiB"), (3 * 2**20, "3 MiB"), (2**31, "2 GiB")])
def test_a_size_is_written_in_the_largest_unit_in_which_it_is_whole(size, text):
    assert units.whole_text(size) == text
