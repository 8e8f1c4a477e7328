"""Generates the interposer's wrappers in C: one for each function of an mpi.h, except the hand-written ones of lifetime.c."""

from launch.trace import loads
from launch.trace.prototypes import Header, Prototype

# They begin, end or switch recording.
HAND_WRITTEN = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Abort", "MPI_Pcontrol")
AFTER = {"MPI_Session_init": '    if (trace_result == MPI_SUCCESS)\n        trace_begin_alone("MPI_Session_init()", 0, 1);\n'}

# Local names must differ from those of parameters.
WRAPPER = """
TRACE_EXPORT {declaration}
{{
    static void *_Atomic trace_slot;
    __typeof__({name}) *trace_function = trace_real(&trace_slot, "P{name}");
    struct trace_call trace_call = trace_enter();
    struct trace_load trace_load = trace_call.table ? {load} : TRACE_NOTHING;
    {start};
    {returns} trace_result = trace_function({arguments});
    trace_leave(&trace_call, {number}, trace_load);
{after}    return trace_result;
}}
"""


def wrapper(number: int, prototype: Prototype) -> str:
    """Writes one function's wrapper in C; `number` is its index in the table of routines."""
    load = loads.load_of(prototype.name, prototype.parameters)
    after = AFTER.get(prototype.name, "")
    # Programs expect errors of MPI-IO, such as MPI_File_delete of a missing file, and continue.
    if load.kind not in ("TRACE_OTHER", "TRACE_IO") and prototype.returns == "int":
        after += f'    if (trace_result != MPI_SUCCESS)\n        trace_note_failure("{prototype.name}");\n'
    return WRAPPER.format(
        declaration=prototype.declaration,
        name=prototype.name,
        load=load.expression,
        start="trace_start_collective(&trace_call, comm)" if load.is_blocking_collective else "trace_start(&trace_call)",
        returns=prototype.returns,
        arguments=", ".join(prototype.parameters),
        number=number,
        after=after,
    )


def intercepted(header: Header) -> list[Prototype]:
    """Returns the prototypes with a generated wrapper, in the alphabetical order of the table of routines."""
    return sorted(prototype for prototype in header.prototypes if prototype.name not in HAND_WRITTEN)


def wrappers_c(header: Header) -> str:
    """Writes the file with all wrappers and the table of routines."""
    prototypes = intercepted(header)
    entries = [f'    {{"{prototype.name}", {loads.load_of(prototype.name, prototype.parameters).kind}}},\n' for prototype in prototypes]
    return "".join(
        [
            '#include "load.h"\n\nconst struct trace_routine trace_mpi_routines[NUM_MPI_ROUTINES] = {\n',
            *entries,
            "};\n",
            *(wrapper(number, prototype) for number, prototype in enumerate(prototypes)),
        ]
    )


def routines_h(header: Header) -> str:
    return f"#define NUM_MPI_ROUTINES {len(intercepted(header))}\n"


def handles_h(header: Header) -> str:
    """Writes definitions that look up handles at their first use, for an MPI whose handles are addresses in its library (Open MPI).

    Otherwise the interposer could be loaded only together with that library.
    """
    return "".join(
        f'#define {name} (*({kind} *)(__extension__({{ static void *_Atomic slot; trace_real(&slot, "{name}"); }})))\n'
        for name, kind in header.data.items()
    )
