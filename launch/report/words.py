"""Numbers, ratios and lists as text, for the report and for the live display. Pure."""


def ranks_of(number):
    return f"{number} rank" if number == 1 else f"{number} ranks"


def repeats_give(number):
    return "one run gives" if number == 1 else f"{number} repeats give"


def printable(text):
    """The text with a space for each non-printable character, such as a terminal's control codes."""
    return "".join(one if one.isprintable() else " " for one in text)


def listed(names):
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def interval(found):
    """The interval of a statistics.Ratio for a table; None where it has none."""
    return f"{found.low:.2f} to {found.high:.2f}" if found and found.low is not None else None


def runs_against(num_runs, num_others, paired):
    """Numbers of runs on the two sides of a ratio, as text."""
    if num_runs != num_others:
        return f"{num_runs} {'run' if num_runs == 1 else 'runs'} against {num_others}"
    if num_runs == 1:
        return "one run each"
    return f"{num_runs} {'pairs' if paired else 'runs each'}"


def uncertainty(found):
    """The interval of a statistics.Ratio and its numbers of runs, as text; those below come first, since they are the subject."""
    runs = runs_against(found.num_below, found.num_above, found.paired)
    return runs if found.low is None else f"95 % interval {interval(found)}, {runs}"


def times_as_fast(found, other):
    """A statistics.Ratio of another's time to one's own, with its uncertainty, as text."""
    if found.is_difference is False:
        return f"no difference shown from {other} ({found.value:.2f} times as fast, {uncertainty(found)})"
    return f"{found.value:.2f} times as fast as {other} ({uncertainty(found)})"


def span(values, form):
    """The smallest and the largest of {name: number}, as text."""
    least, most = min(values, key=values.get), max(values, key=values.get)
    if least == most:
        return f"{form.format(values[least])} ({least})"
    return f"{form.format(values[least])} ({least}) to {form.format(values[most])} ({most})"
