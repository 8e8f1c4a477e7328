"""Two ranks that meet in MPI, and are then done: python -m tests.support.meeting_run slow|late.

slow: rank 1 fails before it has come, and rank 0 comes much later; late: rank 1 does not come in a second.
"""

import sys
import time

from common.errors import UserError
from common.ranks import ending, meeting, watchdog
from common.ranks.launcher_variables import from_environment


def main(how):
    ranks = from_environment()
    watchdog.begin(0, ranks.rank, ending.leave_hung, 1.0 if how == "late" else 30.0)
    try:
        if ranks.rank == 1 and how == "slow":
            raise UserError("no data")
        if ranks.rank == 1 or how == "slow":
            time.sleep(60 if how == "late" else ending.SECONDS_FOR_OTHERS + 2)
        meeting.joined(ranks)
    except (Exception, KeyboardInterrupt) as problem:
        status, error = ending.describe_failure(problem, None)
        print(f"rank {ranks.rank} records {error}", file=sys.stderr, flush=True)
        ending.leave_failed(problem, status, error, ranks)
    print("joined", flush=True)
    ending.leave(0)


if __name__ == "__main__":
    main(sys.argv[1])
