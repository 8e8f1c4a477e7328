"""Merges the traces of a run into one: a process per rank, tracks ordered by kind, one clock."""

from collections.abc import Iterator

from common.tracing import chrome

# The order of a rank's tracks.
KINDS = ("data", "compute", "collectives", "MPI")
TRACKS_OF_A_KIND = 1000


def write(path, sources, offsets=None, about=None):
    """Writes the merged trace of sources, gzipped, as a stream, and returns its metadata.

    ts 0 is the start of the first source; the metadata has it as origin_nanoseconds since the epoch. Each source is corrected by the
    clock offset of its rank (clocks.Offset by rank), which is in the metadata as well.
    """
    sources, offsets = list(sources), offsets or {}
    origin = min((_epoch(source, offsets) + int(source.starts_at * 1000) for source in sources), default=0)
    metadata = (about or {}) | {
        "origin_nanoseconds": origin,
        "clocks": [
            {"source": source.name, "error_microseconds": source.error_microseconds, "note": source.note} for source in sources
        ],
        "ranks": {
            str(rank): {"clock_ahead_microseconds": offset.ahead, "error_microseconds": offset.error} for rank, offset in offsets.items()
        },
    }  # fmt: skip
    metadata["num_events"] = chrome.write(path, merged(sources, origin, offsets), metadata=metadata)
    return metadata


def merged(sources, origin_nanoseconds, offsets) -> Iterator[dict]:
    """Yields the events of all sources with a pid per rank and a tid per track, and the metadata events with their names."""
    tracks = {}
    for source in sources:
        start = (_epoch(source, offsets) - origin_nanoseconds) / 1000
        for rank, kind, track, event in source.events:
            if (tid := tracks.get((rank, kind, track))) is None:
                tid = KINDS.index(kind) * TRACKS_OF_A_KIND + sum(key[:2] == (rank, kind) for key in tracks) + 1
                if not any(key[0] == rank for key in tracks):
                    yield from _named("process", rank, 0, f"rank {rank}", rank)
                tracks[rank, kind, track] = tid
                yield from _named("thread", rank, tid, f"{kind}: {track}", tid)
            yield event | {"pid": rank, "tid": tid, "ts": round(event["ts"] + start, 3)}


def _epoch(source, offsets):
    """Returns a source's ts 0 on rank 0's clock, in nanoseconds since the epoch."""
    ahead = offsets[source.rank].ahead if source.rank in offsets else 0
    return source.origin_nanoseconds - int(ahead * 1000)


def _named(subject, rank, tid, name, index):
    common = {"ph": "M", "ts": 0, "pid": rank, "tid": tid}
    yield common | {"name": f"{subject}_name", "args": {"name": name}}
    yield common | {"name": f"{subject}_sort_index", "args": {"sort_index": index}}
