"""Checks that are made each by itself: one that fails, or cannot be made, stops no other."""

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

STATUSES = ("ok", "skipped", "failed")


class Skipped(Exception):
    """A check that cannot be made here, and why."""


class Todo(NamedTuple):
    """A check to make: `find()` returns what it measured, {name: value}. It raises Skipped, or AssertionError where the check fails."""

    what: str
    find: Callable[[], dict]


class Check(NamedTuple):
    """A check that was made: `status` is ok, skipped or failed, with the reason."""

    part: str
    what: str
    seconds: float
    status: str
    reason: str
    numbers: dict

    def line(self):
        return f"{self.part:<10} {self.what:<58} {self.seconds:7.1f} s  {self.status:<8} {self.reason or told(self.numbers)}".rstrip()


def once(find):
    """A function that has find() called once, by whoever asks first, and gives all the value or the exception."""
    lock, found = threading.Lock(), []

    def ask():
        with lock:
            if not found:
                try:
                    found.append((find(), None))
                except Exception as problem:
                    found.append((None, problem))
        value, problem = found[0]
        if problem:
            raise problem
        return value

    return ask


def run_part(name, part, session):
    """Yields the Checks of a part: `part.todo(session)` lists them, `part.num_at_once(session)` are made at a time.

    `part.SHARE`: of the whole time that they may take.
    """
    session = session.part(part.SHARE)
    with ThreadPoolExecutor(part.num_at_once(session)) as pool:
        yield from pool.map(lambda one: made(name, one), part.todo(session))


def made(part, todo):
    """The Check of a Todo."""
    begun = time.monotonic()
    status, reason, numbers = "ok", "", {}
    try:
        numbers = todo.find()
    except Skipped as why:
        status, reason = "skipped", str(why)
    except AssertionError as why:
        status, reason = "failed", str(why)
    except Exception as problem:
        traceback.print_exc()
        status, reason = "failed", f"{type(problem).__name__}: {problem}"
    return Check(part, todo.what, time.monotonic() - begun, status, reason, numbers)


def told(numbers):
    """Numbers in one line."""
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in numbers.items())


def summary(checks, about, seconds):
    """A table of all checks, and how many there are of each status."""
    counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in STATUSES)
    return "\n".join([about, *(check.line() for check in checks), f"{counts}; {seconds:.0f} s", ""])
