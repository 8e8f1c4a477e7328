"""TensorFlow's profile (XSpace, a protocol buffer that the tensorflow package can read) as a trace in Chrome's format."""

from common.tracing import chrome

# The name of a step in PyTorch's profiler, followed by its number; profiling.py uses it for TensorFlow's profiler too.
STEP = "ProfilerStep#"


def convert(path, target):
    """Writes the profile at `path` as a trace in Chrome's format; needs only the tensorflow package."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    metadata = {"origin_nanoseconds": start_nanoseconds(space), "host": next(iter(space.hostnames), None)}
    chrome.write(target, events(space), metadata=metadata)


def start_nanoseconds(space):
    """Returns the epoch time of an XSpace's time 0: the stat `profile_start_time`; 0 where its times are epoch times."""
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
                return stat.uint64_value or stat.int64_value
    return 0


def events(space):
    """Yields the spans of an XSpace as X events, in microseconds since start_nanoseconds. Devices become processes, lines threads."""
    for pid, plane in enumerate(space.planes):
        for tid, line in enumerate(plane.lines):
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": line.display_name or line.name}}
            for event in line.events:
                if event.duration_ps:
                    yield _span(plane, line, event) | {"pid": pid, "tid": tid}


def _span(plane, line, event):
    metadata = plane.event_metadata[event.metadata_id]
    start = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
    return {"ph": "X", "name": metadata.display_name or metadata.name, "ts": start, "dur": event.duration_ps / 1e6}
