"""The numbers and the texts that an option, a setting or a key of a record takes: in an annotation, as in `Annotated[int, FROM_1]`.

They are checked when a command line is parsed, and by pydantic when a record is read.
"""

from __future__ import annotations

import operator
import re
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

if typing.TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class Bounds(NamedTuple):
    """The numbers that an option takes; `hint` ends the message about others. NaN is never among them.

    Each option has a lower and an upper bound: without one, a mistyped number runs for ever or fills the memory.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    hint: str = ""

    def problem(self, value: float) -> str | None:
        """Describes the values that are allowed; None for one of these."""
        limits = [
            ("at least", self.at_least, operator.ge), ("above", self.above, operator.gt),
            ("at most", self.at_most, operator.le), ("below", self.below, operator.lt),
        ]  # fmt: skip
        limits = [(words, limit, holds) for words, limit, holds in limits if limit is not None]
        if all(holds(value, limit) for _, limit, holds in limits):
            return None
        return f"it must be {' and '.join(f'{words} {limit}' for words, limit, _ in limits)}{self.hint}"

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        limits = {"ge": self.at_least, "gt": self.above, "le": self.at_most, "lt": self.below}
        return _narrowed(handler(kind), {keyword: limit for keyword, limit in limits.items() if limit is not None})


class Pattern(NamedTuple):
    """The texts that an option takes: those that a regular expression matches, and the characters of these in words."""

    expression: str
    characters: str

    def problem(self, value: str) -> str | None:
        """Describes the texts that are allowed; None for one of these."""
        return None if re.fullmatch(self.expression, value) else f"use {self.characters}"

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _narrowed(handler(kind), {"pattern": f"^({self.expression})$"})


# pydantic's schemas are dictionaries of many types.
def _narrowed(schema: Any, keywords: Mapping[str, Any]) -> Any:
    """Adds keywords to pydantic's schema of a value, or of one that may be None: records are checked as command lines are."""
    return schema | {"schema": schema["schema"] | keywords} if schema["type"] == "nullable" else schema | keywords


# More than any count, rate or time of a training.
MOST = 10**9
FROM_0 = Bounds(at_least=0, at_most=MOST)
FROM_1 = Bounds(at_least=1, at_most=MOST)
POSITIVE = Bounds(above=0, at_most=MOST)
NUMBER = Bounds(at_least=-1e30, at_most=1e30)
RANKS = Bounds(at_least=1, at_most=2**24)
# What is started for each: a run, a thread, a layer.
REPEATS = Bounds(at_least=1, at_most=1000)
THREADS = Bounds(at_least=1, at_most=4096)
# Beyond the longest published contexts; every position has its row in the tables of the rotary embeddings.
CONTEXT = Bounds(at_least=1, at_most=2**20)
# The deepest published Transformers have 126 (Llama 3.1 405B, arXiv:2407.21783).
LAYERS = Bounds(at_least=1, at_most=128)
