"""What the programs that start runs have in common as commands."""

import signal
import sys

from common import config
from common.errors import UserError


def main(run, arguments, program, description):
    """Calls run(arguments of this class, read from the command line) and exits with the status it returns.

    Exit status 0: all runs ok; 1: a run failed or timed out; 2: a mistake in the arguments; 130: interrupted.
    """
    # A shell that starts a program in the background makes it ignore SIGINT; its runs are to end with it all the same.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(run(config.parse(arguments, program, description)))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
