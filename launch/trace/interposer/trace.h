/* What the files of the interposer share. Each calls only those above it here, and the generated wrappers all of them. */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "generated.h" /* NUM_MPI_ROUTINES and NUM_ROUTINES, of which NCCL's are last; handles of an MPI where they are addresses */

#define TRACE_EXPORT __attribute__((visibility("default")))

/* The bins of IBM's mpitrace: 0 bytes, up to 4, up to 8, and doubling; the last has all larger sizes. */
#define NUM_BINS 42

/* PAYLOAD: the program's data. CONTROL: negotiation and synchronization. COMPLETION: of nonblocking calls. IO: MPI-IO. */
enum trace_kind { TRACE_PAYLOAD, TRACE_CONTROL, TRACE_COMPLETION, TRACE_OTHER, TRACE_IO, TRACE_NCCL, NUM_KINDS };

struct trace_load {
    int64_t bytes;
    enum trace_kind kind;
};

struct trace_sums {
    _Atomic int64_t calls, bytes, nanoseconds;
};

/* This process and its run; `pid` is 0 until recording begins, and a forked child has another. */
struct trace_process {
    pid_t pid;
    int rank, num_ranks, with_mpi;
    int64_t start_nanoseconds;
    char job[128], folder[PATH_MAX - 256];
};

/* symbols.c */
const char *trace_first_of(const char *const *variables);
const char *trace_launchers_rank(void);
void *trace_look(const char *name);
void *trace_find(void *_Atomic *slot, const char *name);

/* The MPI library's function by its profiling name, which is not intercepted. */
#define PMPI(name) \
    (__extension__({ \
        static void *_Atomic slot; \
        (__typeof__(MPI_##name) *)trace_find(&slot, "PMPI_" #name); \
    }))

/* calls.c */
extern _Atomic int trace_recording;
extern struct trace_sums trace_routines[NUM_ROUTINES][NUM_BINS], trace_kinds[NUM_KINDS];
int64_t trace_now(void);
int64_t trace_enter(void);
int64_t trace_leave(int64_t start_nanoseconds);
void trace_count(int routine, int64_t duration_nanoseconds, struct trace_load load);

/* profile.c; the names are generated */
extern const char *const trace_names[NUM_ROUTINES];
void trace_write(const struct trace_process *process, const char *how);

/* lifetime.c */
void trace_begin_with_nccl(int rank, int num_ranks);

#endif
