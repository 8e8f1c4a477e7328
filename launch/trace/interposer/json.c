/* The profile as JSON: the content of the text, and the counters of each bin. */
#include "output.h"
#include "process.h"
#include "trace.h"

const char *const trace_kind_names[NUM_KINDS] = {"other", "payload", "control", "completion", "io"};

/* A quoted string; control and non-ASCII characters become question marks. */
static void write_string(struct trace_file *file, const char *text)
{
    trace_print(file, "\"");
    for (; *text; text++) {
        unsigned char character = (unsigned char)*text;
        const char *escape = character == '"' || character == '\\' ? "\\" : "";
        trace_print(file, "%s%c", escape, character < 0x20 || character >= 0x7f ? '?' : character);
    }
    trace_print(file, "\"");
}

static void write_sums(struct trace_file *file, struct trace_sums sum)
{
    trace_print(file, "\"calls\": %lld, \"bytes\": %lld, \"seconds\": %.9f, \"waited_seconds\": %.9f", (long long)sum.calls,
                (long long)sum.bytes, trace_seconds(sum.nanoseconds), trace_seconds(sum.waited_nanoseconds));
}

static void write_routine(struct trace_file *file, int routine)
{
    trace_print(file, "{\"name\": \"%s\", \"kind\": \"%s\", ", trace_routine(routine).name, trace_kind_names[trace_routine(routine).kind]);
    write_sums(file, trace_sum(routine));
    trace_print(file, ", \"control\": {");
    write_sums(file, trace_sum_bin(routine, CONTROL_BIN));
    trace_print(file, "}, \"histogram\": [");
    const char *between = "";
    for (int bin = 0; bin < NUM_BINS; bin++) {
        struct trace_sums sum = trace_sum_bin(routine, bin);
        if (!sum.calls)
            continue;
        if (bin == NUM_BINS - 1)
            trace_print(file, "%s{\"up_to_bytes\": null, ", between);
        else
            trace_print(file, "%s{\"up_to_bytes\": %lld, ", between, bin ? 4LL << (bin - 1) : 0LL);
        write_sums(file, sum);
        trace_print(file, "}");
        between = ", ";
    }
    trace_print(file, "]}");
}

static void write_routines(struct trace_file *file, const char *name, int first, int end)
{
    const char *between = "";
    trace_print(file, ",\n \"%s\": [", name);
    for (int routine = first; routine < end; routine++) {
        if (!trace_sum(routine).calls)
            continue;
        trace_print(file, "%s\n  ", between);
        write_routine(file, routine);
        between = ",";
    }
    trace_print(file, "]");
}

static void write_task(struct trace_file *file, int rank, const struct trace_task *task)
{
    trace_print(file, "{\"rank\": %d, \"host\": ", rank);
    write_string(file, task->host);
    trace_print(file, ", \"pid\": %d, \"cpu\": %d, \"communication_seconds\": %.9f, \"elapsed_seconds\": %.9f, ", task->pid, task->cpu,
                task->communication_seconds, task->elapsed_seconds);
    trace_print(file, "\"user_seconds\": %.6f, ", task->user_seconds);
    trace_print(file, "\"system_seconds\": %.6f, \"max_resident_bytes\": %lld, \"switches\": %lld}", task->system_seconds,
                (long long)task->max_resident_bytes, (long long)task->switches);
}

static void write_kinds(struct trace_file *file)
{
    struct trace_sums sums[NUM_KINDS];
    trace_sum_kinds(sums);
    trace_print(file, ",\n \"kinds\": {");
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        trace_print(file, "%s\"%s\": {", kind ? ", " : "", trace_kind_names[kind]);
        write_sums(file, sums[kind]);
        trace_print(file, "}");
    }
    trace_print(file, "},\n \"payload_bytes_per_second\": %.1f", trace_payload_bandwidth(sums));
}

void trace_write_json(const struct trace_end *end)
{
    const struct trace_process *is = &trace_process;
    struct trace_file file;
    trace_open_file(&file, "mpi_profile", ".json");
    trace_print(&file, "{\"format\": \"tandem mpi profile 1\", \"rank\": %d, \"num_ranks\": %d, \"job\": ", is->rank, is->num_ranks);
    write_string(&file, is->job);
    trace_print(&file, ", \"mpi\": ");
    write_string(&file, is->library);
    trace_print(&file, ",\n \"ended\": ");
    write_string(&file, end->how);
    trace_print(&file, ", \"start_epoch_seconds\": %.6f, \"num_threads\": %d, ", is->start_epoch_seconds, trace_num_tables());
    trace_print(&file, "\"barrier_before_collectives\": %s, \"control_limit_bytes\": %lld", trace_with_barrier ? "true" : "false",
                (long long)trace_control_limit_bytes);
    trace_print(&file, ",\n \"own\": ");
    write_task(&file, is->rank, &end->own);
    write_kinds(&file);
    write_routines(&file, "routines", 0, NUM_MPI_ROUTINES);
    write_routines(&file, "nccl", NUM_MPI_ROUTINES, NUM_ROUTINES);
    trace_print(&file, ",\n \"no_summary_because\": ");
    if (end->tasks)
        trace_print(&file, "null");
    else
        write_string(&file, end->missing);
    trace_print(&file, ",\n \"tasks\": [");
    for (int rank = 0; end->tasks && is->rank == 0 && rank < is->num_ranks; rank++) {
        trace_print(&file, "%s\n  ", rank ? "," : "");
        write_task(&file, rank, &end->tasks[rank]);
    }
    trace_print(&file, "]}\n");
    trace_close_file(&file);
}
