"""The small digits, converted once into every format."""

from typing import NamedTuple

import pytest

from common.data.formats import FORMATS
from tests.support import converted


class Digits(NamedTuple):
    """`in_memory`: the settings that read the small digits from memory. `folders`: {format: folder into which they are converted}."""

    in_memory: dict
    folders: dict


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    in_memory = converted.small_digits(folder)
    return Digits(in_memory, {name: converted.convert(folder / name, name, **in_memory) for name in FORMATS})
