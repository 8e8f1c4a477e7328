"""The exceptions whose text is the whole message: no traceback is printed; and what a line may hold."""

from typing import ClassVar, Literal, final


class UserError(Exception):
    """A user error: its text says in one line what is wrong and how to fix it. Programs print it and exit with status 2."""


class RunError(Exception):
    """A fault that all ranks of a run find at the same moment; its text says in one line what is wrong. The run exits with status 1."""

    # That of the record.
    status: ClassVar[Literal["failed", "diverged"]] = "failed"


def printable(text: str) -> str:
    """The text with a space for each non-printable character, such as a terminal's control codes."""
    return "".join(character if character.isprintable() else " " for character in text)


@final
class Diverged(RunError):
    """A loss, a gradient or a parameter is NaN or infinite."""

    status = "diverged"
