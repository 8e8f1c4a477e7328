/* Shared declarations of the interposer, and the path of every intercepted call: enter, start, leave. */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "routines.h" /* generated: NUM_MPI_ROUTINES and NUM_ROUTINES; NCCL's follow MPI's */

#define TRACE_EXPORT __attribute__((visibility("default")))

/* The bins of IBM's mpitrace: 0 bytes, up to 4, up to 8, and doubling; the last has all larger sizes. */
#define NUM_BINS 42

/* PAYLOAD: the program's data. CONTROL: negotiation and synchronization. COMPLETION: of nonblocking calls. IO: MPI-IO. */
enum trace_kind { TRACE_OTHER, TRACE_PAYLOAD, TRACE_CONTROL, TRACE_COMPLETION, TRACE_IO, TRACE_NCCL, NUM_KINDS };

struct trace_sums {
    int64_t calls, bytes, nanoseconds;
};

/* The calls of each routine by message size, and all calls by kind. */
struct trace_counters {
    struct trace_sums routines[NUM_ROUTINES][NUM_BINS], kinds[NUM_KINDS];
};

/* The counters of one thread. Tables are never freed: that of an ended thread is reused by another.
 * Written by one thread and read by any: relaxed atomics, which are as fast as plain integers on common machines.
 */
struct trace_table {
    struct trace_counters counters;
    struct trace_table *next;
    int number;
    _Atomic int in_use;
};

/* `table` is NULL for a call that is not recorded. */
struct trace_call {
    struct trace_table *table;
    int64_t start;
    int is_outermost;
};

struct trace_load {
    int64_t bytes;
    enum trace_kind kind;
};

/* This process and its run; `pid` is 0 until recording begins, and a forked child has another. */
struct trace_process {
    pid_t pid;
    int rank, num_ranks;
    /* Whether there is an MPI_COMM_WORLD, and the call that began recording. */
    int with_mpi;
    const char *began;
    int64_t start_nanoseconds;
    char job[128], folder[PATH_MAX - 256];
};

/* generated */
extern const char *const trace_names[NUM_ROUTINES];

/* symbols.c */
void *trace_find(void *_Atomic *slot, const char *name);
void *trace_look(const char *name);

/* counters.c */
extern _Atomic int trace_recording;
extern __thread struct trace_table *trace_own_table;
/* MPI calls inside an MPI call, such as those of a user-defined reduction, count as part of the outer call. */
extern __thread int trace_inside;
struct trace_table *trace_take_table(void);
void trace_add_up(struct trace_sums *to, const struct trace_sums *more);
const struct trace_counters *trace_collect(void);

/* events.c */
extern _Atomic int trace_with_events;
void trace_open_events(int64_t capacity);
void trace_event(const struct trace_call *call, int routine, struct trace_load load, int64_t nanoseconds);
void trace_write_events(void);

/* profile.c */
void trace_open_file(const char *kind, const char *suffix);
void trace_put(const void *bytes, size_t length);
__attribute__((format(printf, 1, 2))) void trace_print(const char *format, ...);
void trace_close_file(void);
void trace_write_profile(const char *how);

/* lifetime.c */
extern struct trace_process trace_process;
const char *trace_launchers_rank(void);
void trace_begin_with_nccl(int rank, int num_ranks);

static inline int64_t trace_read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline int64_t trace_now(void)
{
    return trace_read_clock(CLOCK_MONOTONIC);
}

static inline double trace_seconds(int64_t nanoseconds)
{
    return (double)nanoseconds / 1e9;
}

static inline void *trace_real(void *_Atomic *slot, const char *name)
{
    void *routine = atomic_load_explicit(slot, memory_order_relaxed);
    return routine ? routine : trace_find(slot, name);
}

/* The MPI library's function by its profiling name, which is not intercepted. */
#define PMPI(name) \
    (__extension__({ \
        static void *_Atomic slot; \
        (__typeof__(MPI_##name) *)trace_real(&slot, "PMPI_" #name); \
    }))

static inline struct trace_call trace_enter(void)
{
    struct trace_call call = {.is_outermost = !trace_inside};
    trace_inside = 1;
    if (call.is_outermost && atomic_load_explicit(&trace_recording, memory_order_relaxed))
        call.table = trace_own_table ? trace_own_table : trace_take_table();
    return call;
}

static inline void trace_start(struct trace_call *call)
{
    if (call->table)
        call->start = trace_now();
}

static inline int trace_bin(int64_t bytes)
{
    if (bytes <= 4)
        return bytes > 0;
    int bin = 64 - __builtin_clzll((uint64_t)bytes - 1) - 1;
    return bin < NUM_BINS ? bin : NUM_BINS - 1;
}

static inline void trace_add(int64_t *to, int64_t more)
{
    __atomic_store_n(to, *to + more, __ATOMIC_RELAXED);
}

static inline void trace_count(struct trace_sums *sums, int64_t bytes, int64_t nanoseconds)
{
    trace_add(&sums->calls, 1);
    trace_add(&sums->bytes, bytes);
    trace_add(&sums->nanoseconds, nanoseconds);
}

static inline void trace_leave(struct trace_call *call, int routine, struct trace_load load)
{
    if (call->is_outermost)
        trace_inside = 0;
    if (!call->table)
        return;
    int64_t nanoseconds = trace_now() - call->start;
    struct trace_counters *counters = &call->table->counters;
    trace_count(&counters->routines[routine][trace_bin(load.bytes)], load.bytes, nanoseconds);
    trace_count(&counters->kinds[load.kind], load.bytes, nanoseconds);
    if (atomic_load_explicit(&trace_with_events, memory_order_relaxed))
        trace_event(call, routine, load, nanoseconds);
}

#endif
