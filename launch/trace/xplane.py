"""TensorFlow's profile (XSpace, a protocol buffer that the tensorflow package itself can read) as a trace in Chrome's format."""

from launch.trace import chrome


def convert(path, target):
    """Writes the profile at `path` as a trace in Chrome's format; needs no more than tensorflow."""
    # Also where TensorFlow's own tools for it are not installed.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    chrome.write(target, events(space), {"origin_nanoseconds": start_nanoseconds(space), "host": next(iter(space.hostnames), None)})


def start_nanoseconds(space):
    """The epoch time from which an XSpace counts: the stat `profile_start_time`; 0 where its times are epoch times themselves."""
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
                return stat.uint64_value or stat.int64_value
    return 0


def events(space):
    """Yields the events of an XSpace that last, as X events; microseconds since start_nanoseconds. Devices are processes, lines threads."""
    for pid, plane in enumerate(space.planes):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": plane.name}}
        for tid, line in enumerate(plane.lines):
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": line.display_name or line.name}}
            for event in line.events:
                if event.duration_ps == 0:
                    continue
                metadata = plane.event_metadata[event.metadata_id]
                yield {
                    "ph": "X", "name": metadata.display_name or metadata.name, "pid": pid, "tid": tid,
                    "ts": line.timestamp_ns / 1e3 + event.offset_ps / 1e6, "dur": event.duration_ps / 1e6,
                }  # fmt: skip
