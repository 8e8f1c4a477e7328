"""One trace of a run from those of its parts: a process for each rank, its tracks ordered by kind, one clock."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from launch.trace import chrome

# The order of a rank's tracks.
KINDS = ("data", "compute", "collectives", "MPI")
TRACKS_OF_A_KIND = 1000


class Placed(NamedTuple):
    """An event and its place: rank, kind of track and the track's name. The event needs no pid and no tid."""

    rank: int
    kind: str
    track: str
    event: dict


class Source(NamedTuple):
    """One part's events, with X for what lasts, and its clock: `ts` 0 is at origin_nanoseconds since the epoch.

    `rank` is the one whose node's clock it is; `starts_at` is the least ts; error_microseconds is how far its times may be
    from that clock, None where that is not known, and `note` says why.
    """

    name: str
    rank: int
    origin_nanoseconds: int
    starts_at: float
    error_microseconds: float | None
    note: str
    events: Iterable[Placed]


def write(path, sources, offsets=None, about=None):
    """Writes the merged trace of sources, gzipped, as a stream, and returns its metadata.

    ts 0 is where the first source starts; the metadata holds it as origin_nanoseconds since the epoch. Each source is
    moved by how far its rank's clock is ahead of rank 0's (clocks.Offset by rank), which the metadata tells as well.
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
    metadata["num_events"] = chrome.write(path, merged(sources, origin, offsets), metadata)
    return metadata


def merged(sources, origin_nanoseconds, offsets) -> Iterator[dict]:
    """Yields the events of all sources with a pid for each rank and a tid for each track, and the metadata that names them."""
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
    """When a source's ts 0 was on rank 0's clock, in nanoseconds since the epoch."""
    ahead = offsets[source.rank].ahead if source.rank in offsets else 0
    return source.origin_nanoseconds - int(ahead * 1000)


def _named(what, rank, tid, name, index):
    common = {"ph": "M", "ts": 0, "pid": rank, "tid": tid}
    yield common | {"name": f"{what}_name", "args": {"name": name}}
    yield common | {"name": f"{what}_sort_index", "args": {"sort_index": index}}


class Lanes:
    """Tracks for spans that overlap: as many as there are spans at once. Spans come in the order in which they end."""

    def __init__(self):
        self.ends = []

    def lane_for(self, start, end):
        """The number, from 0, of a lane in which nothing has ended after this span's start."""
        for number, busy_until in enumerate(self.ends):
            if busy_until <= start:
                self.ends[number] = end
                return number
        self.ends.append(end)
        return len(self.ends) - 1
