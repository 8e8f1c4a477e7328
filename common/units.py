"""Sizes in bytes, read from text."""

import re

from common.errors import UserError

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtKMGT])(i?))?B")


def size_of(text: str, option: str) -> float:
    """Returns the bytes in the text of an option, such as 80GB or 64 MiB. Raises UserError for any other text, and for 0."""
    match = SIZE.fullmatch(text)
    if not match or not float(match[1]):
        raise UserError(f"{option} is {text!r}; give the memory of a rank, such as 80GB or 64GiB")
    number, prefix, binary = match.groups()
    return float(number) * (1024 if binary else 1000) ** " kmgt".index((prefix or " ").lower())
