"""Messages of the ranks of a run to the program that started it: a line of their output with the run's mark and a JSON object.

The mark has a secret of the run, so that nothing that a user's file prints is a message by chance.
"""

import functools
import json
import os
from typing import TYPE_CHECKING, Annotated, NamedTuple

from common.bounds import FROM_0, Bounds
from common.progress import Progress

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# Set for its ranks, to the secret, by a program that reads their messages. Without it their output is for a person. A user's file may
# clear it.
VARIABLE = "TANDEM_MESSAGES"
SECRET = os.environ.get(VARIABLE)
# Linux: PID_MAX_LIMIT.
MAX_PID = 2**22


class Position(NamedTuple):
    """The step and epoch of a rank, both counted from 1. Epoch 0 is before training; step num_steps + 1 is after the last step."""

    epoch: Annotated[int, FROM_0] = 0
    step: Annotated[int, FROM_0] = 0
    num_steps: Annotated[int, FROM_0] = 0

    def __str__(self) -> str:
        if not self.epoch:
            return "before the first epoch"
        if self.step > self.num_steps:
            return f"after the {self.num_steps} steps of epoch {self.epoch}"
        return f"in step {self.step}/{self.num_steps} of epoch {self.epoch}"


class Hang(NamedTuple):
    """A rank had no heartbeat for some seconds."""

    rank: Annotated[int, FROM_0]
    position: Position
    seconds: Annotated[float, FROM_0]

    def __str__(self) -> str:
        return f"rank {self.rank}: hung for {self.seconds:.0f} s {self.position} (--watchdog-timeout)"


class TurnEnded(NamedTuple):
    """The turn of a run has ended, and its ranks, which have these process IDs, stop themselves."""

    pids: list[Annotated[int, Bounds(at_least=1, at_most=MAX_PID)]]


class RankEnded(NamedTuple):
    """A rank has ended: with its error, or with None where the run has recorded that it completed.

    `is_cause` is False where its launcher may have ended it, since another rank has failed.
    """

    error: str | None
    is_cause: bool = True


Message = Progress | Hang | TurnEnded | RankEnded
KINDS: dict[str, type[Message]] = {"progress": Progress, "hang": Hang, "turn ended": TurnEnded, "rank ended": RankEnded}


def are_read() -> bool:
    """Decides whether a program reads the messages of this process."""
    return SECRET is not None


def send(message: Message) -> None:
    """Prints a message where a program reads it, on a line of its own whatever was printed before; no effect elsewhere."""
    if SECRET is not None:
        print(f"\n{format_line(message, SECRET)}", flush=True)


def mark_of(secret: str) -> str:
    """Returns what stands before the JSON of a message in a run with this secret."""
    return f"tandem-message {secret}:"


def format_line(message: Message, secret: str) -> str:
    kind = next(kind for kind, message_type in KINDS.items() if isinstance(message, message_type))
    return f"{mark_of(secret)} {json.dumps({'kind': kind} | message._asdict())}"


def read_line(line: str, secret: str) -> Message | None:
    """Reads the message in a line of output, behind what a launcher writes before it; None for any other line, however similar."""
    _, mark, text = line.partition(mark_of(secret))
    if not mark:
        return None
    try:
        values = json.loads(text)
        message = _adapter(values.pop("kind")).validate_python(values)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    return None if message == TurnEnded([]) else message


@functools.cache
def _adapter(kind: str) -> "TypeAdapter[Message]":
    # Imported here, since the ranks need not have it.
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(KINDS[kind], config=ConfigDict(strict=True))
