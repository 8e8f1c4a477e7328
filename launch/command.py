"""What the programs that start runs have in common as commands."""

import signal
import sys

from common import config
from common.errors import UserError


def main(run, arguments, program, description):
    """Calls run(arguments of this class, read from the command line) and exits with the status it returns.

    Exit status 0: all runs ok; 1: a run failed or timed out; 2: a mistake in the arguments; 130: interrupted.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(run(config.parse(arguments, program, description)))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
