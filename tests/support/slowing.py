"""What a slowed copy of a backend does in each step (tests/support/made_backends.py)."""

import time


def compute_more(fraction, times=[0.0]):  # noqa: B006
    """Computes for a fraction of the processor time since the last call, on a busy machine as on a quiet one."""
    used = time.process_time() - times[-1]
    end = time.process_time() + fraction * used
    while time.process_time() < end:
        pass
    times[:] = [time.process_time()]
