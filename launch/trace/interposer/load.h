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

/* Of a collective that is control if it is small enough. */
static inline struct trace_load trace_shares(int64_t bytes, int may_be_control)
{
    return trace_moves(bytes, may_be_control && bytes <= trace_control_limit_bytes ? TRACE_CONTROL : TRACE_PAYLOAD);
}

/* Horovod negotiates ready tensors by bitwise AND and OR of its cache's bits. */
static inline struct trace_load trace_reduces(int64_t count, MPI_Datatype type, int times, MPI_Op op)
{
    return trace_shares(trace_bytes(count, type) * times, op == MPI_BAND || op == MPI_BOR || op == MPI_LAND || op == MPI_LOR);
}

/* Horovod's coordinator exchanges lists as bytes, each preceded by its length; so does mpi4py with objects. */
static inline struct trace_load trace_spreads(int64_t count, MPI_Datatype type, int times)
{
    int is_length = count == 1 && (type == MPI_INT || type == MPI_COUNT);
    return trace_shares(trace_bytes(count, type) * times, type == MPI_BYTE || type == MPI_CHAR || is_length);
}

static inline int trace_ask(int (*question)(MPI_Comm, int *), MPI_Comm comm)
{
    int answer = 0;
    question(comm, &answer);
    return answer;
}

/* The number of ranks with which this one exchanges: those of the remote group for an inter-communicator. */
static inline int trace_num_peers(MPI_Comm comm)
{
    return trace_ask(trace_ask(PMPI(Comm_test_inter), comm) ? PMPI(Comm_remote_size) : PMPI(Comm_size), comm);
}

/* The sum of an expression with `peer` over the numbers of the peers. */
#define TRACE_SUM(expression, number) \
    (__extension__({ \
        int64_t sum = 0; \
        for (int peer = 0, peers = (number); peer < peers; peer++) \
            sum += (expression); \
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

#endif
