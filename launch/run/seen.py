"""What of a matrix the lines of launch/matrix.sh --check are derived from."""

from typing import Literal, NamedTuple

from common.config import Settings
from launch.launchers.commands import PYTHON, Launcher
from launch.run.answers import Node
from launch.run.plan import Job

Level = Literal["ok", "note", "problem"]


class Seen(NamedTuple):
    """What is known of a matrix. The defaults are those of a matrix that would stop before it asks the backends."""

    settings: Settings
    jobs: list[Job]
    # The node that was asked, and whether ranks run there.
    node: Node
    of_ranks: bool = False
    # How the launcher was chosen, or why there is none.
    choice: str = ""
    launcher: Launcher | None = None
    # The jobs that can run, on the device of the matrix, and by backend or size why the others cannot.
    runnable: tuple[Job, ...] = ()
    reasons: dict[str, str] = {}  # noqa: RUF012
    # Why the matrix would stop, and the messages of frameworks that are built for GPUs and see none.
    stops: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    # The values of --backends and --share-machine.
    requested: str | None = None
    shares_machine: bool = False

    @property
    def problem(self) -> Level:
        """The level of what is wrong on the node, where that may not be one of the ranks'."""
        return "problem" if self.of_ranks else "note"

    @property
    def python(self) -> str:
        """The ranks' Python."""
        return (self.launcher.python if self.launcher else PYTHON)[-1]
