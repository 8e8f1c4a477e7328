/* NCCL's public calls, with the signatures of its documentation (NVIDIA, NCCL user guide, "NCCL API").
 *
 * They only enqueue work in a GPU stream: counted are calls, bytes, and the time of enqueueing.
 * NCCL's types are declared as plain C types, so that building needs no NCCL.
 */
#include <stddef.h>

#include "trace.h"

typedef struct {
    char internal[128];
} unique_id;

/* Bytes of the values of ncclDataType_t, in order: int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 fp8 fp8. */
static int64_t bytes_of(size_t count, int type)
{
    static const int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int)(sizeof sizes / sizeof *sizes) ? (int64_t)count * sizes[type] : 0;
}

#define WRAP(name, parameters, arguments, bytes, rank, ranks) \
    TRACE_EXPORT int name parameters \
    { \
        static void *_Atomic slot; \
        int(*real) parameters = (int(*) parameters)trace_real(&slot, #name); \
        trace_begin_alone("the first NCCL call", rank, ranks); \
        struct trace_call call = trace_enter(); \
        struct trace_load load = {bytes, trace_routine(TRACE_##name).kind}; \
        trace_start(&call); \
        int result = real arguments; \
        trace_leave(&call, TRACE_##name, load); \
        return result; \
    }
#define MOVES(name, parameters, arguments) WRAP(name, parameters, arguments, bytes_of(count, type), 0, 1)
#define MANAGES(name, parameters, arguments) WRAP(name, parameters, arguments, 0, 0, 1)

MOVES(ncclAllReduce, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream),
      (from, to, count, type, op, comm, stream))
MOVES(ncclReduceScatter, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream),
      (from, to, count, type, op, comm, stream))
MOVES(ncclAllGather, (const void *from, void *to, size_t count, int type, void *comm, void *stream), (from, to, count, type, comm, stream))
MOVES(ncclBroadcast, (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream),
      (from, to, count, type, root, comm, stream))
MOVES(ncclBcast, (void *at, size_t count, int type, int root, void *comm, void *stream), (at, count, type, root, comm, stream))
MOVES(ncclReduce, (const void *from, void *to, size_t count, int type, int op, int root, void *comm, void *stream),
      (from, to, count, type, op, root, comm, stream))
MOVES(ncclSend, (const void *from, size_t count, int type, int peer, void *comm, void *stream), (from, count, type, peer, comm, stream))
MOVES(ncclRecv, (void *to, size_t count, int type, int peer, void *comm, void *stream), (to, count, type, peer, comm, stream))
MANAGES(ncclGroupStart, (void), ())
MANAGES(ncclGroupEnd, (void), ())
WRAP(ncclCommInitRank, (void **comm, int ranks, unique_id id, int rank), (comm, ranks, id, rank), 0, rank, ranks)
WRAP(ncclCommInitRankConfig, (void **comm, int ranks, unique_id id, int rank, void *config),
     (comm, ranks, id, rank, config), 0, rank, ranks)
MANAGES(ncclCommInitAll, (void **comms, int num_devices, const int *devices), (comms, num_devices, devices))
MANAGES(ncclCommSplit, (void *comm, int color, int key, void **made, void *config), (comm, color, key, made, config))
MANAGES(ncclCommFinalize, (void *comm), (comm))
MANAGES(ncclCommDestroy, (void *comm), (comm))
MANAGES(ncclCommAbort, (void *comm), (comm))
