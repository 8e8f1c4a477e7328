"""How long a matrix still takes, from the runs so far."""

from collections.abc import Callable


class Pace:
    """The time that ended groups of runs took, by which those that are left are estimated."""

    def __init__(self, num_runs: int, now: Callable[[], float]) -> None:
        self._num_runs = num_runs
        self._now = now
        self._began = self._group_began = now()
        self._num_ended, self._seconds = 0, 0.0

    @property
    def elapsed_seconds(self) -> float:
        """The seconds since the matrix began."""
        return self._now() - self._began

    @property
    def group_seconds(self) -> float:
        """The seconds since the group of runs began."""
        return self._now() - self._group_began

    def begin_group(self) -> None:
        """Notes that a group of runs begins."""
        self._group_began = self._now()

    def end_group(self, num_runs: int) -> None:
        """Notes that the group of so many runs has ended."""
        self._num_ended += num_runs
        self._seconds += self.group_seconds
        self.begin_group()

    def seconds_left(self) -> float | None:
        """Returns the seconds that the runs still take which have not ended; None before a group has ended."""
        if not self._num_ended:
            return None
        expected = self._seconds / self._num_ended * max(self._num_runs - self._num_ended, 0)
        return max(expected - self.group_seconds, 0.0)


def describe(seconds: float) -> str:
    """Returns a time as text, such as `40 s`, `3 min 5 s` or `2 h 10 min`."""
    minutes, seconds_of_minute = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds_of_minute} s" if minutes else f"{seconds_of_minute} s"
