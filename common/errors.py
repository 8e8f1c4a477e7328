"""The exception for user errors."""


class UserError(Exception):
    """A user error: its text says in one line what is wrong and how to fix it. Programs print it and exit with status 2."""
