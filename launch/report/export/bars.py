"""A bar of block characters with a whisker."""

BLOCK, HALF, WHISKER, END = "█", "▌", "─", "┤"


def bar(value: float, low: float, high: float, longest: float, width: int) -> str:
    """Returns a bar of a value, of whose length `longest` has the whole width; its whisker goes from `low` to `high`.

    Where the whisker is shorter than a character, it is left out.
    """
    if longest <= 0:
        return ""
    ends = [round(width * end / longest) for end in (low, high)]
    if ends[1] - ends[0] > 1:
        return BLOCK * ends[0] + WHISKER * (ends[1] - ends[0] - 1) + END
    num_halves = round(2 * width * value / longest)
    return BLOCK * (num_halves // 2) + HALF * (num_halves % 2)
