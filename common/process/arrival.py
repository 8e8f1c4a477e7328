"""The check that the variables that a matrix gave to a launcher have reached a rank, since a job script or a container may drop them."""

import os
from collections.abc import Iterable

from common.errors import UserError

# The arguments always reach a rank. The command that a dry run prints lacks this one, since its user has set no variable.
OPTION = "--expect-variables="


def argument(names: Iterable[str]) -> str:
    """Formats the argument of a rank that expects these variables."""
    return OPTION + ",".join(names)


def check(argv: list[str]) -> None:
    """Takes that argument out of a rank's arguments. Raises UserError where a variable is not set."""
    expected = [name for word in argv if word.startswith(OPTION) for name in word.removeprefix(OPTION).split(",")]
    argv[:] = [word for word in argv if not word.startswith(OPTION)]
    if missing := [name for name in expected if name not in os.environ]:
        raise UserError(
            f"{', '.join(missing)}, which the matrix has set, did not reach this rank; let the launcher, its arguments and the container "
            "pass variables on (Slurm: --export=ALL; Podman: --env-host)"
        )
