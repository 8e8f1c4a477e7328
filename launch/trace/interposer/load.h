/* The bytes and kind of a call from its arguments. Rules: loads.py. */
#ifndef TANDEM_TRACE_LOAD_H
#define TANDEM_TRACE_LOAD_H

#include <mpi.h>

#include "handles.h" /* generated: for an MPI whose handles are addresses */
#include "trace.h"

#define TRACE_NOTHING ((struct trace_load){0, TRACE_OTHER})

static inline int64_t trace_bytes(int64_t count, MPI_Datatype type)
{
    MPI_Count size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI(Type_size_x)(type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    return count * (int64_t)size;
}

static inline struct trace_load trace_moves(int64_t bytes, enum trace_kind kind)
{
    return (struct trace_load){bytes, kind};
}

/* Horovod negotiates ready tensors by bitwise AND and OR of its cache's bits. */
static inline struct trace_load trace_reduces(int64_t count, MPI_Datatype type, int times, MPI_Op op)
{
    int64_t bytes = trace_bytes(count, type) * times;
    int is_control = bytes <= trace_control_limit_bytes && (op == MPI_BAND || op == MPI_BOR || op == MPI_LAND || op == MPI_LOR);
    return trace_moves(bytes, is_control ? TRACE_CONTROL : TRACE_PAYLOAD);
}

/* Horovod's coordinator exchanges lists as bytes, each preceded by its length; so does mpi4py with objects. */
static inline struct trace_load trace_spreads(int64_t count, MPI_Datatype type, int times)
{
    int64_t bytes = trace_bytes(count, type) * times;
    int is_length = count == 1 && (type == MPI_INT || type == MPI_COUNT);
    int is_control = bytes <= trace_control_limit_bytes && (type == MPI_BYTE || type == MPI_CHAR || is_length);
    return trace_moves(bytes, is_control ? TRACE_CONTROL : TRACE_PAYLOAD);
}

static inline int trace_rank_in(MPI_Comm comm)
{
    int rank = 0;
    PMPI(Comm_rank)(comm, &rank);
    return rank;
}

static inline int trace_size_of(MPI_Comm comm)
{
    int size = 0;
    PMPI(Comm_size)(comm, &size);
    return size;
}

/* The number of ranks with which this one exchanges: those of the remote group for an inter-communicator. */
static inline int trace_num_peers(MPI_Comm comm)
{
    int between_groups = 0, size = 0;
    PMPI(Comm_test_inter)(comm, &between_groups);
    if (between_groups)
        PMPI(Comm_remote_size)(comm, &size);
    else
        size = trace_size_of(comm);
    return size;
}

#define TRACE_SUM(counts, number) \
    (__extension__({ \
        int64_t sum = 0; \
        for (int peer = 0, peers = (number); peer < peers; peer++) \
            sum += (counts)[peer]; \
        sum; \
    }))

#define TRACE_SUM_BYTES(counts, types, number) \
    (__extension__({ \
        int64_t sum = 0; \
        for (int peer = 0, peers = (number); peer < peers; peer++) \
            sum += trace_bytes((counts)[peer], (types)[peer]); \
        sum; \
    }))

/* With a barrier before a collective, the collective's time is that of the transfer, the barrier's that of waiting for other ranks.
 * All ranks call it, even when they do not record: MPI_Pcontrol is not collective.
 */
static inline void trace_start_collective(struct trace_call *call, MPI_Comm comm)
{
    trace_start(call);
    if (trace_with_barrier && call->is_outermost)
        PMPI(Barrier)(comm);
    if (trace_with_barrier && call->table)
        call->waited = trace_now() - call->start;
}

void trace_note_failure(const char *routine);
void trace_session_began(void);

#endif
