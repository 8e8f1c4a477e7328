"""The variables with which a run is traced by a preloaded library: ours, or a site's own libmpitrace.so."""

import os


def variables(library, folder, events=None, barrier=False, preloaded=""):
    """{name: value} that every rank must have, for a profile of each rank in `folder`.

    `barrier`: a barrier before each collective, so that waiting is told apart from moving. `events`: how many calls of each
    rank are kept with their start and duration, None for none; only our library knows that. `preloaded` is what LD_PRELOAD
    has already.
    """
    found = {
        "LD_PRELOAD": os.pathsep.join(str(part) for part in (library, preloaded) if part),
        "TRACE_DIR": str(folder),
        "SAVE_ALL_TASKS": "yes",
    }
    if events is not None:
        found["TANDEM_TRACE_EVENTS"] = str(events)
    if barrier:
        found["COLLECTIVE_BARRIER"] = "yes"
    return found
