/* The profile as text, in the layout of IBM's mpitrace (github.com/IBM/mpitrace), for existing readers.
 *
 * Additions to the layout come last.
 */
#include "output.h"
#include "process.h"
#include "trace.h"

#define RULE "-----------------------------------------------------------------------\n"
#define SHORT_RULE "-----------------------------------------------------------------\n"

static double average(struct trace_sums sum)
{
    return sum.calls ? (double)sum.bytes / (double)sum.calls : 0.0;
}

static void write_routines(struct trace_file *file, int first, int end)
{
    for (int routine = first; routine < end; routine++) {
        struct trace_sums sum = trace_sum(routine);
        if (sum.calls)
            trace_print(file, "%-28s %12lld    %11.1f   %12.3f\n", trace_routine(routine).name, (long long)sum.calls, average(sum),
                        trace_seconds(sum.nanoseconds));
    }
}

static void write_own_totals(struct trace_file *file, const struct trace_end *end)
{
    const struct trace_process *is = &trace_process;
    static const char line[] = "MPI task %d of %d had the %s communication time.\n";
    if (end->tasks && is->rank == end->least)
        trace_print(file, line, is->rank, is->num_ranks, "minimum");
    if (end->tasks && is->rank == end->most)
        trace_print(file, line, is->rank, is->num_ranks, "maximum");
    if (end->tasks && is->rank == end->median)
        trace_print(file, line, is->rank, is->num_ranks, "median");
    if (trace_with_barrier)
        trace_print(file, "synchronization time     = %.3f seconds.\n", end->own.waited_seconds);
    trace_print(file, "total communication time = %.3f seconds%s.\n", end->own.communication_seconds,
                trace_with_barrier ? " (including synchronization)" : "");
    trace_print(file, "total elapsed time       = %.3f seconds.\n", end->own.elapsed_seconds);
    trace_print(file, "user cpu time            = %.3f seconds.\n", end->own.user_seconds);
    trace_print(file, "system time              = %.3f seconds.\n", end->own.system_seconds);
    trace_print(file, "max resident set size    = %.3f MiB.\n\n", (double)end->own.max_resident_bytes / 1048576);
    if (end->own.io_seconds > 0)
        trace_print(file, "total MPI-IO time = %.3f seconds.\n\n", end->own.io_seconds);
}

static void write_sizes(struct trace_file *file)
{
    trace_print(file, SHORT_RULE "Message size distributions:\n\n");
    for (int routine = 0; routine < NUM_MPI_ROUTINES; routine++) {
        if (!trace_sum(routine).bytes)
            continue;
        trace_print(file, "%-22s    #calls    avg. bytes      time(sec)\n", trace_routine(routine).name);
        for (int bin = 0; bin < NUM_BINS; bin++) {
            struct trace_sums sum = trace_sum_bin(routine, bin);
            if (sum.calls)
                trace_print(file, "                    %12lld   %11.1f   %12.3f\n", (long long)sum.calls, average(sum),
                            trace_seconds(sum.nanoseconds));
        }
        trace_print(file, "\n");
    }
}

static void write_all_tasks(struct trace_file *file, const struct trace_end *end)
{
    const struct trace_task *tasks = end->tasks;
    static const char line[] = "  %s communication time = %.3f sec for task %d\n";
    int largest = 0, longest = 0;
    for (int rank = 1; rank < trace_process.num_ranks; rank++) {
        largest = tasks[rank].max_resident_bytes > tasks[largest].max_resident_bytes ? rank : largest;
        longest = tasks[rank].elapsed_seconds > tasks[longest].elapsed_seconds ? rank : longest;
    }
    trace_print(file, SHORT_RULE "\nSummary for all tasks:\n\n");
    trace_print(file, "  Rank %d reported the largest memory utilization : %.2f MiB\n", largest,
                (double)tasks[largest].max_resident_bytes / 1048576);
    trace_print(file, "  Rank %d reported the largest elapsed time : %.2f sec\n\n", longest, tasks[longest].elapsed_seconds);
    trace_print(file, line, "minimum", tasks[end->least].communication_seconds, end->least);
    trace_print(file, line, "median ", tasks[end->median].communication_seconds, end->median);
    trace_print(file, line, "maximum", tasks[end->most].communication_seconds, end->most);
    trace_print(file, "\nMPI timing summary for all ranks:\n");
    trace_print(file, "taskid               host    cpu    comm(s)  elapsed(s)     user(s)   system(s)   size(MiB)    switches\n");
    for (int rank = 0; rank < trace_process.num_ranks; rank++)
        trace_print(file, "%6d %18s %6d %10.2f  %10.2f  %10.2f  %10.2f  %10.2f  %10lld\n", rank, tasks[rank].host, tasks[rank].cpu,
                    tasks[rank].communication_seconds, tasks[rank].elapsed_seconds, tasks[rank].user_seconds, tasks[rank].system_seconds,
                    (double)tasks[rank].max_resident_bytes / 1048576, (long long)tasks[rank].switches);
    trace_print(file, "\n");
}

static void write_kinds(struct trace_file *file)
{
    static const enum trace_kind order[NUM_KINDS] = {TRACE_PAYLOAD, TRACE_CONTROL, TRACE_COMPLETION, TRACE_OTHER, TRACE_IO};
    struct trace_sums sums[NUM_KINDS];
    trace_sum_kinds(sums);
    trace_print(file, SHORT_RULE "Payload and control (Tandem):\n\n");
    trace_print(file, "kind                               #calls              bytes      time(sec)    waited(sec)\n");
    for (int place = 0; place < NUM_KINDS; place++) {
        struct trace_sums sum = sums[order[place]];
        trace_print(file, "%-28s %12lld %18lld   %12.3f   %12.3f\n", trace_kind_names[order[place]], (long long)sum.calls,
                    (long long)sum.bytes, trace_seconds(sum.nanoseconds), trace_seconds(sum.waited_nanoseconds));
    }
    trace_print(file, "effective bandwidth of payload = %.3f MB/s.\n\n", trace_payload_bandwidth(sums) / 1e6);
}

static void write_nccl(struct trace_file *file)
{
    int64_t calls = 0;
    for (int routine = NUM_MPI_ROUTINES; routine < NUM_ROUTINES; routine++)
        calls += trace_sum(routine).calls;
    if (!calls)
        return;
    trace_print(file, SHORT_RULE "NCCL calls (Tandem; the time is that of enqueueing on the GPU, not of the transfer):\n\n");
    trace_print(file, "NCCL Routine                       #calls     avg. bytes      time(sec)\n");
    write_routines(file, NUM_MPI_ROUTINES, NUM_ROUTINES);
    trace_print(file, "\n");
}

void trace_write_text(const struct trace_end *end)
{
    struct trace_file file;
    trace_open_file(&file, "mpi_profile", "");
    trace_print(&file, "Data for MPI rank %d of %d:\n", trace_process.rank, trace_process.num_ranks);
    trace_print(&file, "Times from %s to %s.\n", trace_process.began, end->how);
    trace_print(&file, RULE "MPI Routine                        #calls     avg. bytes      time(sec)\n" RULE);
    write_routines(&file, 0, NUM_MPI_ROUTINES);
    trace_print(&file, RULE);
    write_own_totals(&file, end);
    write_sizes(&file);
    if (end->tasks && trace_process.rank == 0)
        write_all_tasks(&file, end);
    write_kinds(&file);
    write_nccl(&file);
    if (!end->tasks)
        trace_print(&file, "There is no summary for all tasks: %s.\n", end->missing);
    trace_close_file(&file);
}
