"""Sizes: the same text means the same bytes in every program."""

import pytest

from common import units
from tests.support.mistakes import refused


def test_a_size_has_a_number_and_a_unit():
    sizes = {"80GB": 80e9, "64GiB": 64 * 2**30, "1.5TB": 1.5e12, "512 MiB": 2**29, "7B": 7, "128 B": 128, "2kB": 2000}
    assert {text: units.size_of(text, "--fits") for text in sizes} == sizes


@pytest.mark.parametrize("text", ["GB", "-1GB", "1e2GB", "iB", "80iB", "much", "", "8", "0GB", "80gb"])
def test_any_other_text_is_refused(text):
    with refused(f"--fits is {text!r}; give the memory of a rank, such as 80GB or 64GiB"):
        units.size_of(text, "--fits")
