/* Counters by thread, and their sums. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "trace.h"

_Atomic int trace_recording;
__thread struct trace_table *trace_own_table;
__thread int trace_inside;

static _Atomic(struct trace_table *) tables;
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
static struct trace_table *make_table(void)
{
    struct trace_table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct trace_table *first = atomic_load(&tables);
    if (table == MAP_FAILED)
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

/* Adds sums that another thread may be counting. */
void trace_add_up(struct trace_sums *to, const struct trace_sums *more)
{
    int64_t calls = __atomic_load_n(&more->calls, __ATOMIC_RELAXED);
    if (!calls)
        return;
    to->calls += calls;
    to->bytes += __atomic_load_n(&more->bytes, __ATOMIC_RELAXED);
    to->nanoseconds += __atomic_load_n(&more->nanoseconds, __ATOMIC_RELAXED);
}

/* The sums over all threads, copied, so that a report is consistent while threads count. */
const struct trace_counters *trace_collect(void)
{
    static struct trace_counters sums;
    memset(&sums, 0, sizeof sums);
    for (const struct trace_table *table = atomic_load(&tables); table; table = table->next) {
        for (int routine = 0; routine < NUM_ROUTINES; routine++)
            for (int bin = 0; bin < NUM_BINS; bin++)
                trace_add_up(&sums.routines[routine][bin], &table->counters.routines[routine][bin]);
        for (int kind = 0; kind < NUM_KINDS; kind++)
            trace_add_up(&sums.kinds[kind], &table->counters.kinds[kind]);
    }
    return &sums;
}
