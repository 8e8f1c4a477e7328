/* Every call with start and duration, in a buffer of fixed size that is written at the end.
 *
 * The file: the line "tandem mpi events 2", a line of JSON, then the events, each a `struct event` in the machine's byte order.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trace.h"

struct event {
    /* A start of 0 marks an event that is being written. */
    int64_t start_nanoseconds, duration_nanoseconds, bytes;
    uint16_t routine, kind;
    uint32_t thread;
};
_Static_assert(sizeof(struct event) == 32, "mpi_events.py reads 32 bytes");

_Atomic int trace_with_events;
static struct event *events;
static int64_t capacity, epoch_of_zero_nanoseconds, clock_error_nanoseconds;
static _Atomic int64_t num_calls;

void trace_open_events(int64_t num_requested)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!num_requested || capacity)
        return;
    int64_t before = trace_now(), epoch = trace_read_clock(CLOCK_REALTIME), after = trace_now();
    epoch_of_zero_nanoseconds = epoch - (before + after) / 2;
    clock_error_nanoseconds = (after - before) / 2 + 1;
    void *memory = mmap(NULL, (size_t)num_requested * sizeof(struct event), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "tandem trace: no memory for %lld events; reduce TANDEM_TRACE_EVENTS\n", (long long)num_requested);
        return;
    }
    events = memory;
    capacity = num_requested;
    atomic_store(&trace_with_events, 1);
}

void trace_event(const struct trace_call *call, int routine, struct trace_load load, int64_t nanoseconds)
{
    int64_t place = atomic_fetch_add_explicit(&num_calls, 1, memory_order_relaxed);
    if (place >= capacity)
        return;
    struct event *event = &events[place];
    event->duration_nanoseconds = nanoseconds;
    event->bytes = load.bytes;
    event->routine = (uint16_t)routine;
    event->kind = (uint16_t)load.kind;
    event->thread = (uint32_t)call->table->number;
    __atomic_store_n(&event->start_nanoseconds, call->start, __ATOMIC_RELEASE);
}

void trace_write_events(void)
{
    if (!atomic_load(&trace_with_events))
        return;
    int64_t all = atomic_load(&num_calls), num_events = all < capacity ? all : capacity;
    trace_open_file("mpi_events", ".bin");
    trace_print("tandem mpi events 2\n{\"rank\": %d, \"num_events\": %lld, \"num_dropped\": %lld, ", trace_process.rank,
                (long long)num_events, (long long)(all - num_events));
    trace_print("\"epoch_of_zero_nanoseconds\": %lld, \"clock_error_nanoseconds\": %lld, \"routines\": [",
                (long long)epoch_of_zero_nanoseconds, (long long)clock_error_nanoseconds);
    for (int routine = 0; routine < NUM_ROUTINES; routine++)
        trace_print("%s\"%s\"", routine ? ", " : "", trace_names[routine]);
    trace_print("]}\n");
    trace_put(events, (size_t)num_events * sizeof *events);
    trace_close_file();
}
