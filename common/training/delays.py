"""The waits of a run that should be found slower (--control delayed)."""

import math
import time

from common.config import CONTROL_DELAY, Settings
from common.meter import Meter
from common.process.watchdog import Watchdog

# A wait gives a heartbeat this often: where runs take no turns, one wait is for a whole epoch.
HEARTBEAT_SECONDS = 1.0


class Delay:
    """Makes a delayed run take longer on the clock by CONTROL_DELAY, and does nothing in any other.

    A rank waits where it has waited for its device anyway, which are the ends of turns, epochs and evaluations: a GPU would compute what is
    queued during a wait between two steps.
    """

    def __init__(self, settings: Settings, clock: Meter[float], watchdog: Watchdog) -> None:
        self._is_delayed, self._clock, self._watchdog = settings.control == "delayed", clock, watchdog
        self._begun = clock.now()

    def begin(self) -> None:
        """Begins a time that is made longer."""
        self._begun = self._clock.now()

    def wait(self) -> None:
        """Waits for CONTROL_DELAY of the time since it began, or since the wait before."""
        if self._is_delayed:
            seconds = CONTROL_DELAY * (self._clock.now() - self._begun)
            num_parts = math.ceil(seconds / HEARTBEAT_SECONDS)
            for _ in range(num_parts):
                time.sleep(seconds / num_parts)
                self._watchdog.heartbeat()
        self.begin()
