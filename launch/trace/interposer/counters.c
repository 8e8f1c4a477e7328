/* Counters by thread, and their sums. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#include "trace.h"

_Atomic int trace_recording;
int trace_with_barrier;
int64_t trace_control_limit_bytes = 65536;
__thread struct trace_table *trace_own_table;
__thread int trace_inside;

static _Atomic(struct trace_table *) tables;
/* Replaces `tables` for this thread's reports between trace_freeze and trace_thaw. */
static __thread struct trace_table *_Atomic frozen;
static pthread_key_t key;

static void give_back(void *table)
{
    trace_own_table = NULL;
    atomic_store(&((struct trace_table *)table)->in_use, 0);
}

__attribute__((constructor)) static void make_key(void)
{
    pthread_key_create(&key, give_back);
}

/* Memory is committed only for the pages of routines that are called. */
static struct trace_table *empty_table(void)
{
    struct trace_table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

static struct trace_table *make_table(void)
{
    struct trace_table *table = empty_table(), *first = atomic_load(&tables);
    if (!table)
        return NULL;
    table->in_use = 1;
    do {
        table->next = first;
        table->number = first ? first->number + 1 : 0;
    } while (!atomic_compare_exchange_weak(&tables, &first, table));
    return table;
}

/* This thread's table; NULL without memory for one. */
struct trace_table *trace_take_table(void)
{
    struct trace_table *table = atomic_load(&tables);
    while (table && atomic_exchange(&table->in_use, 1))
        table = table->next;
    if (table || (table = make_table()))
        pthread_setspecific(key, table);
    trace_own_table = table;
    return table;
}

/* Adds or, for a `sign` of -1, subtracts sums, which another thread may be counting. */
static void add(struct trace_sums *to, const struct trace_sums *more, int sign)
{
    to->calls += sign * __atomic_load_n(&more->calls, __ATOMIC_RELAXED);
    to->bytes += sign * __atomic_load_n(&more->bytes, __ATOMIC_RELAXED);
    to->nanoseconds += sign * __atomic_load_n(&more->nanoseconds, __ATOMIC_RELAXED);
    to->waited_nanoseconds += sign * __atomic_load_n(&more->waited_nanoseconds, __ATOMIC_RELAXED);
}

static struct trace_table *reported(void)
{
    return frozen ? frozen : atomic_load(&tables);
}

struct trace_sums trace_sum_bin(int routine, int bin)
{
    struct trace_sums sum = {0};
    for (struct trace_table *table = reported(); table; table = table->next)
        add(&sum, &table->routines[routine][bin], 1);
    return sum;
}

struct trace_sums trace_sum(int routine)
{
    struct trace_sums sum = {0};
    for (int bin = 0; bin < NUM_BINS; bin++) {
        struct trace_sums of_bin = trace_sum_bin(routine, bin);
        add(&sum, &of_bin, 1);
    }
    return sum;
}

int trace_num_tables(void)
{
    struct trace_table *first = reported();
    return first ? first->number + 1 : 0;
}

/* Takes a snapshot for this thread's reports until trace_thaw, so that they are consistent while other threads count.
 * Returns 0 without memory for it, and in a signal handler that interrupted a frozen state.
 */
int trace_freeze(void)
{
    struct trace_table *copy = frozen ? NULL : empty_table();
    if (!copy)
        return 0;
    copy->number = trace_num_tables() - 1;
    for (int routine = 0; routine < NUM_ROUTINES; routine++)
        /* Threads count a call before its control: read the other way round, control never exceeds calls. */
        for (int bin = CONTROL_BIN; bin >= 0; bin--) {
            struct trace_sums sum = trace_sum_bin(routine, bin);
            if (sum.calls)
                copy->routines[routine][bin] = sum;
        }
    frozen = copy;
    return 1;
}

void trace_thaw(void)
{
    struct trace_table *copy = frozen;
    frozen = NULL;
    munmap(copy, sizeof *copy);
}

#define TRACE_ENTRY(name, kind) {#name, kind},
static const struct trace_routine nccl_routines[] = {NCCL_ROUTINES(TRACE_ENTRY)};

struct trace_routine trace_routine(int routine)
{
    return routine < NUM_MPI_ROUTINES ? trace_mpi_routines[routine] : nccl_routines[routine - NUM_MPI_ROUTINES];
}

/* The counters of MPI's routines by kind. */
void trace_sum_kinds(struct trace_sums sums[NUM_KINDS])
{
    for (int kind = 0; kind < NUM_KINDS; kind++)
        sums[kind] = (struct trace_sums){0};
    for (int routine = 0; routine < NUM_MPI_ROUTINES; routine++) {
        struct trace_sums all = trace_sum(routine), control = trace_sum_bin(routine, CONTROL_BIN);
        struct trace_sums *of_kind = &sums[trace_mpi_routines[routine].kind];
        add(of_kind, &all, 1);
        add(of_kind, &control, -1);
        add(&sums[TRACE_CONTROL], &control, 1);
    }
}

/* Bytes of payload per second of payload and completion calls. */
double trace_payload_bandwidth(const struct trace_sums sums[NUM_KINDS])
{
    int64_t moving = sums[TRACE_PAYLOAD].nanoseconds + sums[TRACE_COMPLETION].nanoseconds;
    return moving > 0 ? (double)sums[TRACE_PAYLOAD].bytes * 1e9 / (double)moving : 0.0;
}
