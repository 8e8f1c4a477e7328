/* Every call with start and duration, in a buffer of fixed size that is written at the end.
 *
 * The file: the line "tandem mpi events 1", a line of JSON, then the events, each a `struct event` in the machine's byte order.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "output.h"
#include "process.h"
#include "trace.h"

struct event {
    int64_t start_nanoseconds, duration_nanoseconds, bytes;
    uint16_t routine, kind;
    uint32_t thread;
};
_Static_assert(sizeof(struct event) == 32, "events.py reads 32 bytes");

_Atomic int trace_with_events;
struct trace_clock trace_clock;
static struct event *events;
static int64_t capacity;
static _Atomic int64_t seen;

/* Reads the epoch time between two readings of the monotonic clock; the closest of several pairs is kept. */
void trace_read_clocks(void)
{
    int64_t closest = INT64_MAX;
    for (int reading = 0; reading < 20; reading++) {
        int64_t before = trace_now(), between = trace_read_clock(CLOCK_REALTIME), after = trace_now();
        if (after - before < closest) {
            closest = after - before;
            trace_clock.epoch_nanoseconds = between;
            trace_clock.monotonic_nanoseconds = before + closest / 2;
            trace_clock.pairing_error_nanoseconds = closest / 2 + 1;
        }
    }
}

void trace_open_events(int64_t num_requested)
{
    if (num_requested <= 0 || capacity)
        return;
    trace_read_clocks();
    int without_swap = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t size = (size_t)num_requested * sizeof(struct event);
    void *memory = num_requested > INT64_MAX / (int64_t)sizeof(struct event) ? MAP_FAILED
                                                                      : mmap(NULL, size, PROT_READ | PROT_WRITE, without_swap, -1, 0);
    if (memory == MAP_FAILED)
        fprintf(stderr, "tandem trace: no memory for %lld events; reduce TANDEM_TRACE_EVENTS\n", (long long)num_requested);
    else {
        events = memory;
        capacity = num_requested;
    }
    /* A rank without memory for events still takes part in comparing clocks. */
    atomic_store(&trace_with_events, 1);
}

void trace_event(const struct trace_call *call, int routine, struct trace_load load, int64_t nanoseconds)
{
    int64_t place = atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed);
    if (place >= capacity)
        return;
    struct event *event = &events[place];
    event->duration_nanoseconds = nanoseconds;
    event->bytes = load.bytes;
    event->routine = (uint16_t)routine;
    event->kind = (uint16_t)load.kind;
    event->thread = (uint32_t)call->table->number;
    /* A start of 0 marks an event that is being written. */
    __atomic_store_n(&event->start_nanoseconds, call->start, __ATOMIC_RELEASE);
}

void trace_write_events(void)
{
    if (!atomic_load(&trace_with_events))
        return;
    const struct trace_process *is = &trace_process;
    const struct trace_clock *clock = &trace_clock;
    int64_t all = atomic_load(&seen), kept = all < capacity ? all : capacity;
    struct trace_file file;
    trace_open_file(&file, "mpi_events", ".bin");
    trace_print(&file, "tandem mpi events 1\n{\"rank\": %d, \"num_ranks\": %d, \"pid\": %d, ", is->rank, is->num_ranks, (int)is->pid);
    trace_print(&file, "\"num_events\": %lld, \"num_dropped\": %lld, \"host\": \"%s\", ", (long long)kept, (long long)(all - kept), is->host);
    trace_print(&file, "\"epoch_nanoseconds\": %lld, \"monotonic_nanoseconds\": %lld, \"pairing_error_nanoseconds\": %lld, ",
                (long long)clock->epoch_nanoseconds, (long long)clock->monotonic_nanoseconds,
                (long long)clock->pairing_error_nanoseconds);
    trace_print(&file, "\"offset_nanoseconds\": %lld, \"offset_error_nanoseconds\": %lld, \"routines\": [",
                (long long)clock->offset_nanoseconds, (long long)clock->offset_error_nanoseconds);
    for (int routine = 0; routine < NUM_ROUTINES; routine++)
        trace_print(&file, "%s\"%s\"", routine ? ", " : "", trace_routine(routine).name);
    trace_print(&file, "]}\n");
    if (kept)
        trace_put(&file, events, (size_t)kept * sizeof *events);
    trace_close_file(&file);
}
