"""Curves as text for a terminal. Pure."""

HEIGHT = 21
WIDTH = 65
MARKS = "o+x#"
SHARED = "*"


def plot(curves, height=HEIGHT, width=WIDTH):
    """The lines of a plot of {name: values from 0 to 1 by epoch}; None and missing values are left out."""
    num_epochs = max((len(values) for values in curves.values()), default=0)
    # At most three characters per epoch, so that the points of short runs stay close together.
    last_column = min(3 * (num_epochs - 1), width - 1)
    columns = [round(index * last_column / max(num_epochs - 1, 1)) for index in range(num_epochs)]
    marks = dict(zip(curves, MARKS, strict=False))
    grid = [[" "] * (last_column + 1) for _ in range(height)]
    owner = {}
    for name, values in curves.items():
        for column, value in zip(columns, values, strict=False):
            if value is None:
                continue
            row = round((1 - value) * (height - 1))
            first_name = owner.setdefault((row, column), name)
            grid[row][column] = marks[name] if first_name == name else SHARED
    if not owner:
        return ["nothing to plot"]
    labelled = {round((1 - fifth / 5) * (height - 1)): f"{fifth / 5:.1f}" for fifth in range(6)}
    lines = [f"{labelled.get(row, ''):>4} | {''.join(cells)}".rstrip() for row, cells in enumerate(grid)]
    epoch_numbers = "1" if num_epochs == 1 else f"1{num_epochs:>{last_column}}"
    legend = [f"{marks[name]} {name}" for name in curves] + ([f"{SHARED} both"] if any(SHARED in row for row in grid) else [])
    return [*lines, "     +" + "-" * (last_column + 2), f"       {epoch_numbers} epoch", f"       {'   '.join(legend)}"]
