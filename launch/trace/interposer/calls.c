/* What is recorded of a call: sums by routine and message size, and sums by kind. */
#define _GNU_SOURCE
#include <time.h>

#include "trace.h"

_Atomic int trace_recording;
struct trace_sums trace_routines[NUM_ROUTINES][NUM_BINS], trace_kinds[NUM_KINDS];

/* MPI calls inside an MPI call, such as those of a user-defined reduction, count as part of the outer call. */
static __thread int depth;

int64_t trace_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
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

void trace_count(int routine, int64_t duration_nanoseconds, struct trace_load load)
{
    add(&trace_routines[routine][bin_of(load.bytes)], load.bytes, duration_nanoseconds);
    add(&trace_kinds[load.kind], load.bytes, duration_nanoseconds);
}
