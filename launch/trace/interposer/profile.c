/* The profile of a rank, as text in the layout of IBM's mpitrace (github.com/IBM/mpitrace), for existing readers.
 *
 * Additions to the layout come last; the times of routines have microseconds. The file is complete or absent. Writing does not call malloc,
 * so that a signal handler can do it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace.h"

#define RULE "-----------------------------------------------------------------------\n"
#define SHORT_RULE "-----------------------------------------------------------------\n"

static int descriptor, failed;

#define PRINT(...) (failed |= dprintf(descriptor, __VA_ARGS__) < 0)

static double seconds_of(int64_t nanoseconds)
{
    return (double)nanoseconds / 1e9;
}

static void print_sums(const char *format, const char *name, const struct trace_sums *sums)
{
    if (sums->calls)
        PRINT(format, name, (long long)sums->calls, (double)sums->bytes / (double)sums->calls, seconds_of(sums->nanoseconds));
}

static struct trace_sums sum_of_sizes(int routine)
{
    struct trace_sums sum = {0};
    for (const struct trace_sums *bin = trace_routines[routine]; bin < trace_routines[routine] + NUM_BINS; bin++) {
        sum.calls += bin->calls;
        sum.bytes += bin->bytes;
        sum.nanoseconds += bin->nanoseconds;
    }
    return sum;
}

static void print_routines(int first, int end)
{
    for (int routine = first; routine < end; routine++) {
        struct trace_sums sum = sum_of_sizes(routine);
        print_sums("%-28s %12lld    %11.1f   %12.6f\n", trace_names[routine], &sum);
    }
}

static void print_totals(int64_t elapsed_nanoseconds)
{
    struct rusage usage;
    int64_t in_mpi = 0;
    getrusage(RUSAGE_SELF, &usage);
    for (enum trace_kind kind = 0; kind < TRACE_IO; kind++)
        in_mpi += trace_kinds[kind].nanoseconds;
    PRINT("total communication time = %.3f seconds.\n", seconds_of(in_mpi));
    PRINT("total elapsed time       = %.3f seconds.\n", seconds_of(elapsed_nanoseconds));
    PRINT("user cpu time            = %.3f seconds.\n", (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6);
    PRINT("system time              = %.3f seconds.\n", (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
    PRINT("max resident set size    = %.3f MiB.\n\n", (double)usage.ru_maxrss / 1024);
}

static void print_sizes(void)
{
    PRINT(SHORT_RULE "Message size distributions:\n\n");
    for (int routine = 0; routine < NUM_MPI_ROUTINES; routine++) {
        if (!sum_of_sizes(routine).bytes)
            continue;
        PRINT("%-22s    #calls    avg. bytes      time(sec)\n", trace_names[routine]);
        for (int bin = 0; bin < NUM_BINS; bin++)
            print_sums("%20s%12lld   %11.1f   %12.6f\n", "", &trace_routines[routine][bin]);
        PRINT("\n");
    }
}

static void print_kinds(void)
{
    static const char *const names[TRACE_NCCL] = {"payload", "control", "completion", "other", "io"};
    PRINT(SHORT_RULE "Payload and control (Tandem):\n\n");
    PRINT("kind                               #calls              bytes      time(sec)\n");
    for (enum trace_kind kind = 0; kind < TRACE_NCCL; kind++) {
        const struct trace_sums *sums = &trace_kinds[kind];
        PRINT("%-28s %12lld %18lld   %12.6f\n", names[kind], (long long)sums->calls, (long long)sums->bytes, seconds_of(sums->nanoseconds));
    }
}

static void print_profile(const struct trace_process *process, const char *how)
{
    const char *began = process->with_mpi ? "MPI_Init()" : "the first NCCL call";
    PRINT("Data for MPI rank %d of %d:\nTimes from %s to %s.\n", process->rank, process->num_ranks, began, how);
    PRINT(RULE "MPI Routine                        #calls     avg. bytes      time(sec)\n" RULE);
    print_routines(0, NUM_MPI_ROUTINES);
    PRINT(RULE);
    print_totals(trace_now() - process->start_nanoseconds);
    print_sizes();
    print_kinds();
    if (trace_kinds[TRACE_NCCL].calls) {
        PRINT("\n" SHORT_RULE "NCCL calls (Tandem; the time is that of enqueueing on the GPU, not of the transfer):\n\n");
        PRINT("NCCL Routine                       #calls     avg. bytes      time(sec)\n");
        print_routines(NUM_MPI_ROUTINES, NUM_ROUTINES);
    }
}

/* Writes mpi_profile.JOB.RANK. */
void trace_write(const struct trace_process *process, const char *how)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/mpi_profile.%s.%d", process->folder, process->job, process->rank);
    snprintf(temporary, sizeof temporary, "%s.part", path);
    mkdir(process->folder, 0777);
    descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    failed = descriptor < 0;
    if (!failed)
        print_profile(process, how);
    if (failed || close(descriptor) || rename(temporary, path)) {
        dprintf(STDERR_FILENO, "tandem trace: %s cannot be written (%s); set TRACE_DIR to another folder\n", path, strerror(errno));
        unlink(temporary);
    }
}
