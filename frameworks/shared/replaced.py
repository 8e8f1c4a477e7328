"""Replacing what a library has for a while: to leave its communication out, or to watch it."""

import contextlib


@contextlib.contextmanager
def replaced(*replacements):
    """Context in which attributes have other values: of each (object, class or module; name; value). They are restored whatever happens.

    What an object had from its class, it has from its class again.
    """
    with contextlib.ExitStack() as restoring:
        for owner, name, value in replacements:
            attributes = vars(owner)
            restoring.callback(*((setattr, owner, name, attributes[name]) if name in attributes else (delattr, owner, name)))
            setattr(owner, name, value)
        yield
