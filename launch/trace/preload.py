"""The variables with which a run is traced by a preloaded library: ours, or a site's own libmpitrace.so."""

import os


def variables(library, folder, events=None, barrier=False, preloaded=""):
    """{name: value} that every rank must have, for a profile of each rank in `folder`.

    `events`: how many calls of each rank are kept with their start and duration, None for none. `barrier`: a barrier before
    each collective, so that waiting is told apart from moving. Both are only for our library; a site's own does not know
    them. `preloaded` is what LD_PRELOAD has already.
    """
    found = {
        "LD_PRELOAD": os.pathsep.join(str(part) for part in (library, preloaded) if part),
        "TRACE_DIR": str(folder),
        "SAVE_ALL_TASKS": "yes",
    }
    if events is not None:
        found["TANDEM_TRACE_EVENTS"] = str(events)
    if barrier:
        found["TANDEM_TRACE_BARRIER"] = "yes"
    return found
