"""A bar of block characters with a whisker."""

BLOCK, HALF, WHISKER, END = "█", "▌", "─", "┤"


def bar(value: float, high: float, longest: float, width: int) -> str:
    """Returns a bar of a value, of whose length `longest` has the whole width; its whisker goes on to `high`.

    Where the whisker is shorter than two characters, it is left out.
    """
    if longest <= 0:
        return ""
    num_halves = round(2 * width * value / longest)
    drawn = BLOCK * (num_halves // 2) + HALF * (num_halves % 2)
    num_whisker = round(width * high / longest) - len(drawn)
    return drawn + WHISKER * (num_whisker - 1) + END if num_whisker > 1 else drawn
