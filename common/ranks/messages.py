"""Messages of the ranks of a run to the program that started it: a line of their output with the run's mark and a JSON object.

The mark has a secret of the run, so that nothing that a user's file prints is a message by chance.
"""

import json
import os
from typing import NamedTuple

from common.progress import Progress

# Set for its ranks, to the secret, by a program that reads their messages. Without it their output is for a person. A user's file may
# clear it.
VARIABLE = "TANDEM_MESSAGES"
SECRET = os.environ.get(VARIABLE)


class Position(NamedTuple):
    """The step and epoch of a rank, both counted from 1. Epoch 0 is before training; step num_steps + 1 is after the last step."""

    epoch: int = 0
    step: int = 0
    num_steps: int = 0

    def __str__(self) -> str:
        if not self.epoch:
            return "before the first epoch"
        if self.step > self.num_steps:
            return f"after the {self.num_steps} steps of epoch {self.epoch}"
        return f"in step {self.step}/{self.num_steps} of epoch {self.epoch}"


class Hang(NamedTuple):
    """A rank had no heartbeat for some seconds."""

    rank: int
    position: Position
    seconds: float

    def __str__(self) -> str:
        return f"rank {self.rank}: hung for {self.seconds:.0f} s {self.position} (--watchdog-timeout)"


class TurnEnded(NamedTuple):
    """The turn of a run has ended, and its ranks, which have these process IDs, stop themselves."""

    pids: list[int]


class RankEnded(NamedTuple):
    """A rank has ended: with its error, or with None where the run has recorded that it completed.

    `is_cause` is False where its launcher may have ended it, since another rank has failed.
    """

    error: str | None
    is_cause: bool = True


Message = Progress | Hang | TurnEnded | RankEnded
KINDS: dict[str, type[Message]] = {"progress": Progress, "hang": Hang, "turn ended": TurnEnded, "rank ended": RankEnded}


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
    """Reads the message in a line of output, behind what a launcher writes before it; None for any other line, and one that is cut."""
    _, mark, text = line.partition(mark_of(secret))
    if not mark:
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return None
    kind = KINDS[values.pop("kind")]
    return kind(**values | ({"position": Position(*values["position"])} if kind is Hang else {}))
