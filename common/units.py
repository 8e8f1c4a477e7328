"""Sizes in bytes, read from text."""

import re

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)


def size_bytes(text: str) -> float | None:
    """Returns the bytes of a text such as 80GB or 64 MiB; None for any other text."""
    if not (match := SIZE.fullmatch(text.strip())):
        return None
    number, prefix, binary = match.groups()
    return float(number) * (1024 if binary else 1000) ** " kmgt".index((prefix or " ").lower())
