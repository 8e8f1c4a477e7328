"""The environment variables of a traced run: a preloaded library, ours or a site's libmpitrace.so."""

import os


def variables(library, folder, events=None, barrier=False, preloaded=""):
    """{name: value} for every rank, for a profile of each rank in `folder`.

    `barrier`: a barrier before each collective, to separate waiting from data transfer. `events`: the number of calls per rank whose
    start and duration are kept, None for none; our library only. `preloaded`: the present value of LD_PRELOAD.
    """
    environment = {
        "LD_PRELOAD": os.pathsep.join(str(path) for path in (library, preloaded) if path),
        "TRACE_DIR": str(folder),
        "SAVE_ALL_TASKS": "yes",
    }
    if events is not None:
        environment["TANDEM_TRACE_EVENTS"] = str(events)
    if barrier:
        environment["COLLECTIVE_BARRIER"] = "yes"
    return environment
