"""Replacing what a library has for a while: to leave its communication out, or to watch it."""

import contextlib
from collections.abc import Iterator

# An object, class or module, the name of an attribute, and its value.
Replacement = tuple[object, str, object]


@contextlib.contextmanager
def replaced(*replacements: Replacement) -> Iterator[None]:
    """Replaces attributes for a context. They are restored whatever happens.

    What an object had from its class, it has from its class again.
    """
    with contextlib.ExitStack() as restoring:
        for owner, name, value in replacements:
            attributes = vars(owner)
            if name in attributes:
                restoring.callback(setattr, owner, name, attributes[name])
            else:
                restoring.callback(delattr, owner, name)
            setattr(owner, name, value)
        yield
