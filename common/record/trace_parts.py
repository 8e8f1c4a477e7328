"""The parts of a record about the traces of a run, with types and descriptions."""

from dataclasses import dataclass, field

from common.record.parts import Amount, Closed, FromZero, Number, Seconds


@dataclass
class Clock(Closed):
    """Clock of a source of events in the merged trace."""

    source: str
    error_microseconds: Number | None
    """Most by which its times are wrong. `null` where it was not compared with the clock of the host."""
    note: str
    """How the error is known."""


@dataclass
class ClockOfRank(Closed):
    clock_ahead_microseconds: Number
    """How far the clock of the rank's node is ahead of that of rank 0."""
    error_microseconds: Number | None
    """Most by which this is wrong. `null` where the clocks contradict each other."""


@dataclass
class TracedCollective(Closed):
    num: FromZero = 0
    seconds: Number = 0.0
    size_bytes: FromZero = 0


@dataclass
class Wait(Closed):
    """How long tensors of one name waited until all ranks were ready."""

    num_negotiations: FromZero = 0
    total_seconds: Number = 0.0
    max_seconds: Number = 0.0


@dataclass
class Lateness(Closed):
    """How often a rank was the last by more than a cycle, and how long the first rank waited for it."""

    num_last: FromZero = 0
    total_seconds: Number = 0.0
    max_seconds: Number = 0.0


@dataclass
class HorovodTimeline(Closed):
    """The sums of Horovod's timeline."""

    seconds: Number = 0.0
    """Seconds from the start of the timeline to its last event."""
    num_negotiations: FromZero = 0
    """Number of negotiations, one for each tensor and step."""
    num_compared: FromZero = 0
    """Number of negotiations in which the readiness of at least two ranks is known."""
    waits: dict[str, Wait] = field(default_factory=dict)
    """Waits for all ranks, by tensor."""
    lateness: dict[str, Lateness] = field(default_factory=dict)
    """How late ranks were in the negotiations that are compared, by rank."""
    num_operations: dict[str, FromZero] = field(default_factory=dict)
    """Number of collectives, by name."""
    tensors_per_buffer: dict[str, FromZero] = field(default_factory=dict)
    """Number of buffers, by their number of tensors."""
    max_buffer_bytes: FromZero = 0
    """Bytes of the largest buffer."""
    total_bytes: FromZero = 0
    """Bytes of all buffers."""
    activity_seconds: dict[str, Number] = field(default_factory=dict)
    """Seconds of the activities of the collectives, by name. Each buffer counts once."""
    num_cycles: FromZero | None = None
    """Number of Horovod's cycles. `null` where they were not marked."""
    num_used_cycles: FromZero | None = None
    """Number of cycles that began a collective."""
    mean_cycle_seconds: Number | None = None
    """Mean seconds of a cycle."""
    num_unfinished: FromZero = 0
    """Number of negotiations and collectives that had not finished at the end of the timeline."""


@dataclass
class Timeline(Closed):
    trace: str | None
    """File name of the merged trace in the folder `RUN.trace`. `null` if nothing could be merged."""
    num_events: FromZero
    """Number of events in the merged trace."""
    clocks: list[Clock]
    """Each source of events, with the error of its clock."""
    ranks: dict[str, ClockOfRank]
    """How far the clock of each rank is ahead of that of rank 0, by rank."""
    horovod: HorovodTimeline | None
    """Sums of Horovod's timeline."""
    problems: list[str]
    """Problems that occurred when the traces were read, one line each."""
    collectives: dict[str, dict[str, TracedCollective]]
    """Number, seconds and bytes of the collectives, by rank and name."""


@dataclass
class MpiCalls(Closed):
    num_calls: FromZero
    size_bytes: Amount
    seconds: Seconds


@dataclass
class MpiKinds(Closed):
    """Calls by what they are for."""

    control: MpiCalls
    payload: MpiCalls
    completion: MpiCalls | None = None
    io: MpiCalls | None = None
    other: MpiCalls | None = None


@dataclass
class MpiOfRank(Closed):
    communication_seconds: Seconds
    kinds: MpiKinds | None
    payload_bytes_per_second: Amount | None
    elapsed_seconds: Seconds | None = None
    ended: str | None = None


@dataclass
class MpiProfile(Closed):
    ranks: dict[str, MpiOfRank]
    """Seconds in MPI; calls, bytes and seconds of payload and of control messages; bandwidth of the payload; by rank."""
    problems: list[str]
    """Profiles that could not be read, and the number of dropped events, one line each."""
