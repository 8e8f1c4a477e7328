"""What a slowed copy of a backend does in each step (tests/support/made_backends.py)."""

import time

# The processor time of this process at the end of each call.
CALLS_ENDED = [0.0]


def compute_more(fraction):
    """Computes for a fraction of the processor time since the last call, on a busy machine as on a quiet one."""
    end = time.process_time() + fraction * (time.process_time() - CALLS_ENDED[-1])
    while time.process_time() < end:
        pass
    CALLS_ENDED.append(time.process_time())
