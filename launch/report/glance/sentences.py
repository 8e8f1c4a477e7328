"""The answer in plain words: a line for each workload."""

from common.words import listed
from launch.report.glance.answer import Glance, Group, Panel, Standing

NUM_NAMED = 3


def sentences(glance: Glance) -> list[str]:
    """Returns a line for each workload, or for each machine, and one on how sure the order is."""
    certainty = glance.certainty[0].upper() + glance.certainty[1:]
    return [*(sentence for panel in glance.panels for sentence in of_panel(panel)), f"{certainty}."]


def of_panel(panel: Panel) -> list[str]:
    """Returns the lines on a workload: who is first where there are most ranks, or on each machine, and how much longer others take."""
    groups = panel.groups if len({group.machine for group in panel.groups}) > 1 else panel.groups[-1:]
    return [f"{panel.short_name}, {group.name}: {'. '.join(_of_group(panel, group))}." for group in groups]


def _of_group(panel: Panel, group: Group) -> list[str]:
    first, fastest = group.first, group.fastest
    if first is None or fastest is None or first.value is None:
        return ["no backend reached the target" if panel.has_target else "no run completed"]
    if panel.has_target:
        texts = [f"{first.backend} reached the target first, in {first.value:.2f} s"]
    else:
        texts = [f"{first.backend} has the highest throughput, {first.value:.0f} samples a second"]
    if first is not fastest:
        texts.append(f"By seconds per epoch {fastest.backend} is fastest")
    if tied := [standing.backend for standing in group.tied]:
        texts.append(f"No difference is shown from {listed(tied)}")
    return [*texts, *_longer(group), *_missing(group)]


def _longer(group: Group) -> list[str]:
    """Returns how much longer the next backends take that are not tied with the fastest, and the last one."""
    compared = [standing for standing in group.standings if standing.ratio and not standing.remark and standing not in group.tied]
    named = compared if len(compared) <= NUM_NAMED else [*compared[: NUM_NAMED - 1], compared[-1]]
    if not named:
        return []
    nearest, *others = named
    further = [f"{other.backend}'s {_percent(other)}" for other in others]
    return [", ".join([f"{nearest.backend}'s epochs take {_percent(nearest)} longer", *further])]


def _missing(group: Group) -> list[str]:
    """Returns which backends have no value, each with the reason."""
    missing = [f"{standing.backend} ({standing.miss})" for standing in group.standings if standing.value is None]
    return [f"Without a time: {', '.join(missing)}"] if missing else []


def _percent(standing: Standing) -> str:
    return f"{100 * (standing.ratio.value - 1):.0f} %" if standing.ratio else ""
