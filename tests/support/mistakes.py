"""What a mistake of the user must look like."""

import contextlib

import pytest

from common.errors import UserError
from tests.support.forked import run_module


def refusal(call, *arguments, **named):
    """The text of the UserError that a call raises, which must be one line."""
    with pytest.raises(UserError) as raised:
        call(*arguments, **named)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@contextlib.contextmanager
def refused(*parts):
    """Context in which a UserError is raised, whose text is one line and has these parts."""
    with pytest.raises(UserError) as raised:
        yield
    text = str(raised.value)
    assert "\n" not in text
    assert all(part in text for part in parts), text


def expect_refused(message, module, *arguments, **variables):
    """Asserts that a program ends with exit status 2 and one line, which has the message, and has printed nothing else."""
    status, output, error = run_module(module, *arguments, **variables)
    assert (status, output, error.count("\n"), error[:7]) == (2, "", 1, "error: "), error
    assert message in error
