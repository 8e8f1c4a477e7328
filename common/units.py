"""Sizes in bytes, read from text and written as text."""

import re

BINARY = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)


def size_bytes(text: str, kilo: int = 1000) -> float | None:
    """Returns the bytes of a text such as 80GB or 64 MiB; None for any other text.

    `kilo` is the factor of k, and M, G and T are its powers. Ki is always 1024.
    """
    if not (match := SIZE.fullmatch(text.strip())):
        return None
    number, prefix, binary = match.groups()
    return float(number) * (1024 if binary else kilo) ** " kmgt".index((prefix or " ").lower())


def whole_text(num_bytes: int) -> str:
    """Returns a size in the largest unit in which it is whole."""
    unit, size = next((unit, size) for unit, size in BINARY.items() if num_bytes % size == 0)
    return f"{num_bytes // size} {unit}"
