"""The one exception for a user's mistake: its text is the line that the user reads."""


class UserError(Exception):
    """What was wrong and what would be right, in one line; every program exits with status 2 on it."""
