/* What is recorded of a call: sums by routine and message size, sums by kind, and the first calls each with its start and duration. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "trace.h"

_Static_assert(sizeof(struct trace_event) == 32, "profile.py reads 32 bytes");

_Atomic int trace_recording;
struct trace_events trace_events;
struct trace_sums trace_routines[NUM_ROUTINES][NUM_BINS], trace_kinds[NUM_KINDS];

/* MPI calls inside an MPI call, such as those of a user-defined reduction, count as part of the outer call. */
static __thread int depth;
static __thread uint32_t thread_number;
static _Atomic uint32_t num_threads;

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t trace_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void trace_open_events(int64_t capacity)
{
    if (capacity <= 0 || trace_events.capacity || !(trace_events.buffer = calloc((size_t)capacity, sizeof(struct trace_event))))
        return;
    int64_t before = trace_now(), epoch = read_clock(CLOCK_REALTIME), after = trace_now();
    trace_events.epoch_of_zero_nanoseconds = epoch - (before + after) / 2;
    trace_events.clock_error_nanoseconds = (after - before) / 2 + 1;
    trace_events.capacity = capacity;
}

/* Returns when the call starts; 0 for a call that is not recorded. */
int64_t trace_enter(void)
{
    return !depth++ && trace_recording ? trace_now() : 0;
}

/* Returns how long the call took. */
int64_t trace_leave(int64_t start_nanoseconds)
{
    depth--;
    return start_nanoseconds ? trace_now() - start_nanoseconds : 0;
}

static int bin_of(int64_t bytes)
{
    if (bytes <= 4)
        return bytes > 0;
    int bin = 64 - __builtin_clzll((uint64_t)bytes - 1) - 1;
    return bin < NUM_BINS ? bin : NUM_BINS - 1;
}

static void add(struct trace_sums *sums, int64_t bytes, int64_t nanoseconds)
{
    atomic_fetch_add_explicit(&sums->calls, 1, memory_order_relaxed);
    if (bytes)
        atomic_fetch_add_explicit(&sums->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums->nanoseconds, nanoseconds, memory_order_relaxed);
}

static void keep_event(int routine, int64_t start_nanoseconds, int64_t duration_nanoseconds, struct trace_load load)
{
    int64_t place = atomic_fetch_add_explicit(&trace_events.num_calls, 1, memory_order_relaxed);
    if (place >= trace_events.capacity)
        return;
    if (!thread_number)
        thread_number = ++num_threads;
    struct trace_event *event = &trace_events.buffer[place];
    event->duration_nanoseconds = duration_nanoseconds;
    event->bytes = load.bytes;
    event->routine = (uint16_t)routine;
    event->kind = (uint16_t)load.kind;
    event->thread = thread_number - 1;
    __atomic_store_n(&event->start_nanoseconds, start_nanoseconds, __ATOMIC_RELEASE);
}

void trace_count(int routine, int64_t start_nanoseconds, int64_t duration_nanoseconds, struct trace_load load)
{
    add(&trace_routines[routine][bin_of(load.bytes)], load.bytes, duration_nanoseconds);
    add(&trace_kinds[load.kind], load.bytes, duration_nanoseconds);
    if (trace_events.capacity)
        keep_event(routine, start_nanoseconds, duration_nanoseconds, load);
}
