/* Shared declarations of the interposer, and the path of every intercepted call: enter, start, leave. */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "routines.h" /* generated: NUM_MPI_ROUTINES */

#define TRACE_EXPORT __attribute__((visibility("default")))
#define TRACE_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* The bins of IBM's mpitrace: 0 bytes, up to 4, up to 8, and doubling; the last has all larger sizes. */
#define NUM_BINS 42

/* NCCL's calls follow MPI's in the table of routines. */
#define NCCL_ROUTINES(ROUTINE) \
    ROUTINE(ncclAllReduce, TRACE_PAYLOAD) ROUTINE(ncclReduceScatter, TRACE_PAYLOAD) ROUTINE(ncclAllGather, TRACE_PAYLOAD) \
    ROUTINE(ncclBroadcast, TRACE_PAYLOAD) ROUTINE(ncclBcast, TRACE_PAYLOAD) ROUTINE(ncclReduce, TRACE_PAYLOAD) \
    ROUTINE(ncclSend, TRACE_PAYLOAD) ROUTINE(ncclRecv, TRACE_PAYLOAD) \
    ROUTINE(ncclGroupStart, TRACE_OTHER) ROUTINE(ncclGroupEnd, TRACE_OTHER) \
    ROUTINE(ncclCommInitRank, TRACE_OTHER) ROUTINE(ncclCommInitRankConfig, TRACE_OTHER) ROUTINE(ncclCommInitAll, TRACE_OTHER) \
    ROUTINE(ncclCommSplit, TRACE_OTHER) ROUTINE(ncclCommFinalize, TRACE_OTHER) ROUTINE(ncclCommDestroy, TRACE_OTHER) \
    ROUTINE(ncclCommAbort, TRACE_OTHER)
#define TRACE_NUMBER(name, kind) TRACE_##name,
enum { TRACE_BEFORE_NCCL = NUM_MPI_ROUTINES - 1, NCCL_ROUTINES(TRACE_NUMBER) NUM_ROUTINES };

/* PAYLOAD: the program's data. CONTROL: negotiation and synchronization. COMPLETION: of nonblocking calls. IO: MPI-IO. */
enum trace_kind { TRACE_OTHER, TRACE_PAYLOAD, TRACE_CONTROL, TRACE_COMPLETION, TRACE_IO, NUM_KINDS };
extern const char *const trace_kind_names[NUM_KINDS];

struct trace_routine {
    const char *name;
    enum trace_kind kind;
};
extern const struct trace_routine trace_mpi_routines[NUM_MPI_ROUTINES];

/* The place after the bins, of the calls of all sizes that are control. */
#define CONTROL_BIN NUM_BINS

/* `nanoseconds` of the call, without `waited_nanoseconds` of the barrier before it. */
struct trace_sums {
    int64_t calls, bytes, nanoseconds, waited_nanoseconds;
};

/* The counters of one thread. Tables are never freed: that of an ended thread is reused by another.
 * Written by one thread and read by any: relaxed atomics, which are as fast as plain integers on common machines.
 */
struct trace_table {
    struct trace_sums routines[NUM_ROUTINES][NUM_BINS + 1];
    struct trace_table *next;
    int number;
    _Atomic int in_use;
};

/* `table` is NULL for a call that is not recorded. */
struct trace_call {
    struct trace_table *table;
    int64_t start, waited;
    int is_outermost;
};

struct trace_load {
    int64_t bytes;
    enum trace_kind kind;
};

extern _Atomic int trace_recording;
extern _Atomic int trace_with_events;
extern int trace_with_barrier;
extern int64_t trace_control_limit_bytes;
extern __thread struct trace_table *trace_own_table;
/* MPI calls inside an MPI call, such as those of a user-defined reduction, count as part of the outer call. */
extern __thread int trace_inside;

/* symbols.c */
void *trace_find(void *_Atomic *slot, const char *name);
void *trace_look(const char *name);

/* counters.c */
struct trace_table *trace_take_table(void);
struct trace_sums trace_sum_bin(int routine, int bin);
struct trace_sums trace_sum(int routine);
int trace_num_tables(void);
int trace_freeze(void);
void trace_thaw(void);
struct trace_routine trace_routine(int routine);
void trace_sum_kinds(struct trace_sums sums[NUM_KINDS]);
double trace_payload_bandwidth(const struct trace_sums sums[NUM_KINDS]);

/* events.c */
struct trace_clock {
    /* One moment on both clocks, and the error of the pairing. */
    int64_t epoch_nanoseconds, monotonic_nanoseconds, pairing_error_nanoseconds;
    /* To be added to this rank's epoch time to get rank 0's, and the error bound; -1 where not measured. */
    int64_t offset_nanoseconds, offset_error_nanoseconds;
};
extern struct trace_clock trace_clock;
void trace_read_clocks(void);
void trace_open_events(int64_t capacity);
void trace_event(const struct trace_call *call, int routine, struct trace_load load, int64_t nanoseconds);
void trace_write_events(void);

/* lifetime.c */
void trace_begin_alone(const char *began, int rank, int num_ranks);
void trace_note_failure(const char *routine);

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
    return TRACE_LIKELY(routine) ? routine : trace_find(slot, name);
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
        call.table = TRACE_LIKELY(trace_own_table) ? trace_own_table : trace_take_table();
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

static inline void trace_count(struct trace_sums *sums, int64_t bytes, int64_t nanoseconds, int64_t waited)
{
    trace_add(&sums->calls, 1);
    trace_add(&sums->nanoseconds, nanoseconds);
    if (bytes)
        trace_add(&sums->bytes, bytes);
    if (waited)
        trace_add(&sums->waited_nanoseconds, waited);
}

static inline void trace_leave(struct trace_call *call, int routine, struct trace_load load)
{
    if (call->is_outermost)
        trace_inside = 0;
    if (!call->table)
        return;
    int64_t whole = trace_now() - call->start, nanoseconds = whole - call->waited;
    struct trace_sums *bins = call->table->routines[routine];
    trace_count(&bins[trace_bin(load.bytes)], load.bytes, nanoseconds, call->waited);
    if (load.kind == TRACE_CONTROL)
        trace_count(&bins[CONTROL_BIN], load.bytes, nanoseconds, call->waited);
    if (atomic_load_explicit(&trace_with_events, memory_order_relaxed))
        trace_event(call, routine, load, whole);
}

#endif
