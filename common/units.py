"""Sizes in bytes, read from text."""

import re

from common.errors import UserError

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)


def size_bytes(text: str) -> float | None:
    """Returns the bytes of a text such as 80GB or 64 MiB; None for any other text."""
    if not (match := SIZE.fullmatch(text.strip())):
        return None
    number, prefix, binary = match.groups()
    return float(number) * (1024 if binary else 1000) ** " kmgt".index((prefix or " ").lower())


def size_of(text: str, option: str) -> float:
    """Returns the bytes in the text of an option, such as 80GB. Raises UserError for any other text."""
    num_bytes = size_bytes(text) if text.endswith("B") else None
    if not num_bytes:
        raise UserError(f"{option} is {text!r}; give the memory of a rank, such as 80GB or 64GiB")
    return num_bytes
