"""The answer at a glance on a terminal: one screen, as data and then printed."""

import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from common.errors import printable
from launch.report.glance.answer import Glance, Group, Panel, Standing
from launch.report.glance.causes import percents
from launch.report.questions import first
from launch.report.statistics import MARGIN
from launch.report.words import EQUAL, NO_DIFFERENCE

MAX_WIDTH, MAX_LINES = 100, 30
# The most lines of the parts below the backends.
MAX_CAUSES, MAX_STATE, MAX_ADVICE = 7, 4, 2
# A heading and two backends.
MIN_PANEL_LINES = 3
INDENT = "  "
VALUE_WIDTH, PERCENT_WIDTH, MARK_WIDTH, INTERVAL_WIDTH = 6, 9, 3, 16
GAP = 2
MARKS = {first.SLOWER: "<", NO_DIFFERENCE: "=", EQUAL: "=="}
IN_FULL = "in --full"


def show(glance: Glance, links: Sequence[str], console: Console | None = None) -> None:
    """Prints the screen. `links` are its last lines: where all tables are."""
    console = console or Console()
    for line in lines(glance, links, min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH):
        console.print(line, soft_wrap=True, highlight=False)


def lines(glance: Glance, links: Sequence[str], width: int) -> list[Text]:
    """Returns the lines of the screen, at most MAX_LINES; links are not broken into lines."""
    top = [
        *_wrapped(_title(glance.panels), width, style="bold"),
        *_wrapped("; ".join([glance.certainty, *_legend(glance.panels)]), width),
    ]
    why = _limited(_why(glance, width), MAX_CAUSES)
    below = [
        *_limited(_wrapped_each(glance.state, width), MAX_STATE),
        *_limited(_wrapped(f"Next: {'; '.join(glance.advice)}.", width) if glance.advice else [], MAX_ADVICE),
        *(Text(printable(link)) for link in links),
    ]
    panels = _panels(glance.panels, MAX_LINES - len(top) - len(why) - len(below), width)
    leaving = _wrapped(f"{glance.leaving}.", width) if glance.leaving else []
    has_room = sum(map(len, (top, panels, why, leaving, below))) <= MAX_LINES
    return [*top, *panels, *why, *(leaving if has_room else []), *below]


def _title(panels: Sequence[Panel]) -> str:
    scalings = {panel.name.removeprefix(panel.short_name).strip(", ") for panel in panels}
    scaling = f", {scalings.pop()}" if len(scalings) == 1 and scalings != {""} else ""
    if panels and not any(panel.has_target for panel in panels):
        return f"Samples a second{scaling}, and how much longer one takes than the fastest's"
    return f"Time to solution in seconds{scaling}, and how much longer an epoch takes than the fastest's"


def _legend(panels: Iterable[Panel]) -> list[str]:
    verdicts = {standing.verdict for panel in panels for group in panel.groups for standing in group.standings}
    meaning_of = {first.SLOWER: "slower", NO_DIFFERENCE: NO_DIFFERENCE, EQUAL: f"none beyond {100 * MARGIN:g} %"}
    meanings = [f"{mark} {meaning_of[verdict]}" for verdict, mark in MARKS.items() if verdict in verdicts]
    return [", ".join(meanings)] if meanings else []


def _why(glance: Glance, width: int) -> list[Text]:
    """Returns the heading of the causes and their lines; nothing without any."""
    if not glance.causes:
        return []
    kind_width = max(len(cause.kind) for cause in glance.causes)
    heading = f"Why, at {glance.causes_at}:" if glance.causes_at else "Why:"
    causes = [line for cause in glance.causes for line in _wrapped(cause.text, width, f"{INDENT}{cause.kind:<{kind_width}}{INDENT}")]
    return [Text(heading, style="bold"), *causes]


def _wrapped(text: str, width: int, start: str = "", style: str = "") -> list[Text]:
    """Returns a text as lines, the first of which begins with `start`; further ones are indented as far."""
    rows = textwrap.wrap(printable(text), max(width - len(start), 20), break_on_hyphens=False)
    return [Text(f"{start if number == 0 else ' ' * len(start)}{row}", style=style) for number, row in enumerate(rows)]


def _wrapped_each(texts: Iterable[str], width: int) -> list[Text]:
    return [line for text in texts for line in _wrapped(text, width)]


def _limited(shown: list[Text], num_lines: int) -> list[Text]:
    """Returns at most so many lines; the last one says that there are more."""
    return shown if len(shown) <= num_lines else [*shown[: num_lines - 1], Text(f"more {IN_FULL}")]


def _panels(panels: Sequence[Panel], num_lines: int, width: int) -> list[Text]:
    """Returns the lines of the panels, of which none has fewer than MIN_PANEL_LINES; panels that find no room are counted."""
    fitting = max(num_lines // MIN_PANEL_LINES, 1)
    if len(panels) > fitting:
        fitting = max((num_lines - 1) // MIN_PANEL_LINES, 1)
        shown = _panels(panels[:fitting], num_lines - 1, width)
        return [*shown, Text(f"and {len(panels) - fitting} more workloads {IN_FULL}")]
    shown = []
    for number, panel in enumerate(panels):
        # What a panel does not need is left to those after it.
        share = (num_lines - len(shown)) // (len(panels) - number)
        shown += _panel(panel, share, _name_width(panels), width)
    return shown


def _heading(panel: Panel) -> str:
    return f"{panel.short_name}, target {panel.target:g}" if panel.has_target else panel.short_name


def _name_width(panels: Sequence[Panel]) -> int:
    """Returns the width of the headings and names of backends, which is the same in all panels."""
    names = [f"{INDENT}{backend}" for panel in panels for backend in panel.backends]
    return max(map(len, (*map(_heading, panels), *names)), default=0) + GAP


def _panel(panel: Panel, num_lines: int, name_width: int, width: int) -> list[Text]:
    """Returns the heading of a panel and a line for each backend; those that find no room are counted."""
    heading = _heading(panel)
    least = VALUE_WIDTH + PERCENT_WIDTH + MARK_WIDTH
    groups = panel.groups[-max((width - name_width) // least, 1) :]
    cell_width = max((width - name_width) // len(groups), least)
    shown_backends = _chosen(panel.backends, groups, num_lines)
    titles = "".join(f"{group.name:<{cell_width}}" for group in groups)
    shown = [Text(printable(f"{heading:<{name_width}}{titles}".rstrip()), style="bold")]
    for backend in shown_backends:
        line = Text(printable(f"{INDENT + backend:<{name_width}}"))
        for group in groups:
            line.append(_cell(group, backend, cell_width))
        line.rstrip()
        shown.append(line)
    if left_out := [backend for backend in panel.backends if backend not in shown_backends]:
        shown.append(Text(f"{INDENT}and {len(left_out)} more {IN_FULL}{_span_of(groups[-1], left_out)}"))
    return shown


def _chosen(backends: Sequence[str], groups: Sequence[Group], num_lines: int) -> list[str]:
    """Returns the backends that find room below a heading: the fastest of every group, and then those in front."""
    if len(backends) < num_lines:
        return list(backends)
    fastest = {group.fastest.backend for group in groups if group.fastest}
    num_others = max(num_lines - 2 - len(fastest), 0)
    others = [backend for backend in backends if backend not in fastest][:num_others]
    return [backend for backend in backends if backend in fastest or backend in others]


def _span_of(group: Group, backends: Sequence[str]) -> str:
    percents = [100 * (standing.ratio.value - 1) for standing in group.standings if standing.ratio and standing.backend in backends]
    if not percents:
        return ""
    span = dict.fromkeys(f"{percent:+.0f}" for percent in (min(percents), max(percents)))
    return f": {' to '.join(span)} % at {group.name}"


def _cell(group: Group, backend: str, width: int) -> Text:
    """Returns the value of a backend in a group, its percentage and mark, and its interval where that fits."""
    standing = next((standing for standing in group.standings if standing.backend == backend), None)
    if standing is None:
        return Text(" " * width)
    if standing.value is None:
        return Text(f"{standing.miss or '':<{width}}"[:width], style="red")
    value = f"{standing.value:>{VALUE_WIDTH}.{2 if standing.value < 100 else 0}f}"
    is_fastest = standing is group.fastest
    if standing.remark:
        return Text(f"{value}  {standing.remark}"[: width - GAP].ljust(width))
    line = Text(f"{value}{_percent(standing, is_fastest):>{PERCENT_WIDTH}}{MARKS.get(standing.verdict or '', ''):>{MARK_WIDTH}}")
    if is_fastest:
        line.stylize("bold")
    if width >= VALUE_WIDTH + PERCENT_WIDTH + MARK_WIDTH + INTERVAL_WIDTH:
        line.append(f" {_interval(standing)}")
    line.truncate(width, pad=True)
    return line


def _percent(standing: Standing, is_fastest: bool) -> str:
    if is_fastest:
        return first.FASTEST
    return f"{100 * (standing.ratio.value - 1):+.0f} %" if standing.ratio else ""


def _interval(standing: Standing) -> str:
    if standing.ratio is None or standing.ratio.low is None or standing.ratio.high is None:
        return ""
    return f"({percents(standing.ratio.low, standing.ratio.high)})"
