"""What a mistake of the user must look like."""

import contextlib

import pytest

from common.errors import UserError


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
