"""The environment variables of a traced run: a preloaded library, ours or a site's libmpitrace.so."""

import os


def variables(library, folder, events=None, preloaded=""):
    """Returns {name: value} for every rank, for a profile of each rank in `folder`.

    `events`: the number of calls per rank whose start and duration are kept, None for none; our library only. `preloaded`: the present
    value of LD_PRELOAD.
    """
    libraries = os.pathsep.join(str(path) for path in (library, preloaded) if path)
    environment = {"LD_PRELOAD": libraries, "TRACE_DIR": str(folder), "SAVE_ALL_TASKS": "yes"}
    return environment if events is None else environment | {"TANDEM_TRACE_EVENTS": str(events)}
