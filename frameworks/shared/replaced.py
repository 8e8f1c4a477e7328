"""Replacing what a library has for a while: to leave its communication out, or to watch it."""

import contextlib


@contextlib.contextmanager
def replaced(*replacements):
    """Context in which attributes have other values: of each (object, class or module; name; value). They are restored whatever happens.

    What an object had from its class, it has from its class again.
    """
    with contextlib.ExitStack() as restoring:
        for owner, name, value in replacements:
            own = vars(owner)
            restoring.callback(*((setattr, owner, name, own[name]) if name in own else (delattr, owner, name)))
            setattr(owner, name, value)
        yield
