/* The bytes and kind of a call from its arguments. Rules: launch/trace/build.py. */
#ifndef TANDEM_TRACE_LOAD_H
#define TANDEM_TRACE_LOAD_H

#include <mpi.h>

#include "trace.h"

/* A larger message is payload, whatever it is for. */
#define CONTROL_LIMIT_BYTES 65536

static inline struct trace_load trace_moves(int64_t bytes, enum trace_kind kind)
{
    return (struct trace_load){bytes, kind};
}

static inline int64_t trace_bytes(int64_t count, MPI_Datatype type)
{
    MPI_Count size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI(Type_size_x)(type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    return count * (int64_t)size;
}

/* Of a collective that is control if it is small enough. */
static inline struct trace_load trace_shares(int64_t bytes, int may_be_control)
{
    return trace_moves(bytes, may_be_control && bytes <= CONTROL_LIMIT_BYTES ? TRACE_CONTROL : TRACE_PAYLOAD);
}

/* Horovod negotiates ready tensors by bitwise AND and OR of its cache's bits. */
static inline struct trace_load trace_reduces(int64_t count, MPI_Datatype type, MPI_Op op)
{
    return trace_shares(trace_bytes(count, type), op == MPI_BAND || op == MPI_BOR || op == MPI_LAND || op == MPI_LOR);
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

/* `type` is an ncclDataType_t: int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 fp8 fp8. */
static inline struct trace_load trace_nccl(size_t count, int type)
{
    static const int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    int is_known = type >= 0 && type < (int)(sizeof sizes / sizeof *sizes);
    return trace_moves(is_known ? (int64_t)count * sizes[type] : 0, TRACE_NCCL);
}

#endif
