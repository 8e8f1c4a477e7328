"""Exceptions whose text is the whole message, printed without a traceback."""

from typing import ClassVar, Literal, final


class UserError(Exception):
    """A mistake of the user. Its text says in one line what is wrong and how to fix it. Programs print it and exit with status 2."""


class RunError(Exception):
    """A fault that all ranks of a run find at the same moment. Its text says in one line what is wrong. The run exits with status 1."""

    # It is the status of the record too.
    status: ClassVar[Literal["failed", "diverged"]] = "failed"


def printable(text: str) -> str:
    """Replaces each non-printable character, such as a terminal's control codes, by a space."""
    return "".join(character if character.isprintable() else " " for character in text)


@final
class Diverged(RunError):
    """A loss, a gradient or a parameter is NaN or infinite."""

    status = "diverged"
