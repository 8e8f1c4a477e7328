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
static pthread_once_t key_made = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void give_back(void *table)
{
    trace_own_table = NULL;
    atomic_store(&((struct trace_table *)table)->in_use, 0);
}

static void make_key(void)
{
    pthread_key_create(&key, give_back);
}

static struct trace_table *take_free_table(void)
{
    for (struct trace_table *table = atomic_load(&tables); table; table = table->next) {
        int expected = 0;
        if (atomic_compare_exchange_strong(&table->in_use, &expected, 1))
            return table;
    }
    return NULL;
}

/* Memory is committed only for the pages of routines that are called. */
static struct trace_table *empty_table(void)
{
    struct trace_table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

static struct trace_table *make_table(void)
{
    struct trace_table *table = empty_table();
    if (!table)
        return NULL;
    table->in_use = 1;
    struct trace_table *first = atomic_load(&tables);
    do {
        table->next = first;
        table->number = first ? first->number + 1 : 0;
    } while (!atomic_compare_exchange_weak(&tables, &first, table));
    return table;
}

/* This thread's table; NULL without memory for one. */
struct trace_table *trace_take_table(void)
{
    pthread_once(&key_made, make_key);
    struct trace_table *table = take_free_table();
    if (!table)
        table = make_table();
    if (table)
        pthread_setspecific(key, table);
    trace_own_table = table;
    return table;
}

static void add_to(struct trace_total *to, struct trace_total more)
{
    to->calls += more.calls;
    to->bytes += more.bytes;
    to->nanoseconds += more.nanoseconds;
    to->waited_nanoseconds += more.waited_nanoseconds;
}

static struct trace_total read_sums(struct trace_sums *sums)
{
    return (struct trace_total){
        .calls = atomic_load_explicit(&sums->calls, memory_order_relaxed),
        .bytes = atomic_load_explicit(&sums->bytes, memory_order_relaxed),
        .nanoseconds = atomic_load_explicit(&sums->nanoseconds, memory_order_relaxed),
        .waited_nanoseconds = atomic_load_explicit(&sums->waited_nanoseconds, memory_order_relaxed),
    };
}

static struct trace_table *reported(void)
{
    return frozen ? frozen : atomic_load(&tables);
}

struct trace_total trace_sum_bin(int routine, int bin)
{
    struct trace_total total = {0};
    for (struct trace_table *table = reported(); table; table = table->next)
        add_to(&total, read_sums(&table->routines[routine].bins[bin]));
    return total;
}

struct trace_total trace_sum_control(int routine)
{
    struct trace_total total = {0};
    for (struct trace_table *table = reported(); table; table = table->next)
        add_to(&total, read_sums(&table->routines[routine].control));
    return total;
}

struct trace_total trace_sum(int routine)
{
    struct trace_total total = {0};
    for (int bin = 0; bin < NUM_BINS; bin++)
        add_to(&total, trace_sum_bin(routine, bin));
    return total;
}

int trace_num_tables(void)
{
    struct trace_table *first = reported();
    return first ? first->number + 1 : 0;
}

static void copy_sums(struct trace_sums *to, struct trace_total sum)
{
    if (!sum.calls)
        return;
    atomic_store_explicit(&to->calls, sum.calls, memory_order_relaxed);
    atomic_store_explicit(&to->bytes, sum.bytes, memory_order_relaxed);
    atomic_store_explicit(&to->nanoseconds, sum.nanoseconds, memory_order_relaxed);
    atomic_store_explicit(&to->waited_nanoseconds, sum.waited_nanoseconds, memory_order_relaxed);
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
    for (int routine = 0; routine < NUM_ROUTINES; routine++) {
        /* Threads count a call before its control: control never exceeds calls. */
        copy_sums(&copy->routines[routine].control, trace_sum_control(routine));
        for (int bin = 0; bin < NUM_BINS; bin++)
            copy_sums(&copy->routines[routine].bins[bin], trace_sum_bin(routine, bin));
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
void trace_sum_kinds(struct trace_total sums[NUM_KINDS])
{
    for (int kind = 0; kind < NUM_KINDS; kind++)
        sums[kind] = (struct trace_total){0};
    for (int routine = 0; routine < NUM_MPI_ROUTINES; routine++) {
        struct trace_total all = trace_sum(routine), control = trace_sum_control(routine);
        add_to(&sums[TRACE_CONTROL], control);
        all.calls -= control.calls;
        all.bytes -= control.bytes;
        all.nanoseconds -= control.nanoseconds;
        all.waited_nanoseconds -= control.waited_nanoseconds;
        add_to(&sums[trace_mpi_routines[routine].kind], all);
    }
}

/* Bytes of payload per second of payload and completion calls. */
double trace_payload_bandwidth(const struct trace_total sums[NUM_KINDS])
{
    const struct trace_total *payload = &sums[TRACE_PAYLOAD];
    int64_t moving = payload->nanoseconds + sums[TRACE_COMPLETION].nanoseconds;
    return moving > 0 ? (double)payload->bytes * 1e9 / (double)moving : 0.0;
}
