/* The profile of a rank as text, in the layout of IBM's mpitrace (github.com/IBM/mpitrace), for existing readers.
 *
 * Additions to the layout come last; the times of routines have microseconds. A file is complete or absent. Writing does not call malloc,
 * so that a signal handler can do it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace.h"

#define RULE "-----------------------------------------------------------------------\n"
#define SHORT_RULE "-----------------------------------------------------------------\n"

static char path[PATH_MAX], temporary[PATH_MAX + 8];
static int descriptor, failed;
static locale_t plain_locale, locale_before;

__attribute__((constructor)) static void make_locale(void)
{
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Opens KIND.JOB.RANK, with the suffix, in the folder of the profiles. */
void trace_open_file(const char *kind, const char *suffix)
{
    const struct trace_process *is = &trace_process;
    snprintf(path, sizeof path, "%s/%s.%s.%d%s", is->folder, kind, is->job, is->rank, suffix);
    snprintf(temporary, sizeof temporary, "%s.part", path);
    mkdir(is->folder, 0777);
    /* The program's locale may have a decimal comma. */
    locale_before = plain_locale ? uselocale(plain_locale) : (locale_t)0;
    descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    failed = descriptor < 0 ? errno : 0;
}

void trace_put(const void *bytes, size_t length)
{
    for (const char *from = bytes; length && !failed;) {
        ssize_t written = write(descriptor, from, length);
        if (written >= 0) {
            from += written;
            length -= (size_t)written;
        } else if (errno != EINTR)
            failed = errno;
    }
}

void trace_print(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    trace_put(line, length < (int)sizeof line ? (size_t)length : sizeof line - 1);
}

void trace_close_file(void)
{
    if (descriptor >= 0 && close(descriptor) && !failed)
        failed = errno;
    if (!failed && rename(temporary, path))
        failed = errno;
    if (failed) {
        unlink(temporary);
        dprintf(STDERR_FILENO, "tandem trace: %s cannot be written (%s); set TRACE_DIR to another folder\n", path, strerror(failed));
    }
    if (locale_before)
        uselocale(locale_before);
}

static struct trace_sums sum_of(const struct trace_sums bins[NUM_BINS])
{
    struct trace_sums sum = {0};
    for (int bin = 0; bin < NUM_BINS; bin++)
        trace_add_up(&sum, &bins[bin]);
    return sum;
}

static void print_sums(const char *format, const char *name, struct trace_sums sums)
{
    if (sums.calls)
        trace_print(format, name, (long long)sums.calls, (double)sums.bytes / (double)sums.calls, trace_seconds(sums.nanoseconds));
}

static void print_routines(const struct trace_counters *counters, int first, int end)
{
    for (int routine = first; routine < end; routine++)
        print_sums("%-28s %12lld    %11.1f   %12.6f\n", trace_names[routine], sum_of(counters->routines[routine]));
}

static void print_totals(const struct trace_sums kinds[NUM_KINDS])
{
    struct rusage usage;
    int64_t in_mpi = 0, elapsed = trace_now() - trace_process.start_nanoseconds;
    getrusage(RUSAGE_SELF, &usage);
    for (int kind = 0; kind < NUM_KINDS; kind++)
        in_mpi += kind == TRACE_IO || kind == TRACE_NCCL ? 0 : kinds[kind].nanoseconds;
    trace_print("total communication time = %.3f seconds.\n", trace_seconds(in_mpi));
    trace_print("total elapsed time       = %.3f seconds.\n", trace_seconds(elapsed));
    trace_print("user cpu time            = %.3f seconds.\n", (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6);
    trace_print("system time              = %.3f seconds.\n", (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
    trace_print("max resident set size    = %.3f MiB.\n\n", (double)usage.ru_maxrss / 1024);
    if (kinds[TRACE_IO].calls)
        trace_print("total MPI-IO time = %.3f seconds.\n\n", trace_seconds(kinds[TRACE_IO].nanoseconds));
}

static void print_sizes(const struct trace_counters *counters)
{
    trace_print(SHORT_RULE "Message size distributions:\n\n");
    for (int routine = 0; routine < NUM_MPI_ROUTINES; routine++) {
        if (!sum_of(counters->routines[routine]).bytes)
            continue;
        trace_print("%-22s    #calls    avg. bytes      time(sec)\n", trace_names[routine]);
        for (int bin = 0; bin < NUM_BINS; bin++)
            print_sums("%20s%12lld   %11.1f   %12.6f\n", "", counters->routines[routine][bin]);
        trace_print("\n");
    }
}

static void print_kinds(const struct trace_sums kinds[NUM_KINDS])
{
    static const char *const names[] = {"payload", "control", "completion", "other", "io"};
    static const enum trace_kind order[] = {TRACE_PAYLOAD, TRACE_CONTROL, TRACE_COMPLETION, TRACE_OTHER, TRACE_IO};
    trace_print(SHORT_RULE "Payload and control (Tandem):\n\n");
    trace_print("kind                               #calls              bytes      time(sec)\n");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        struct trace_sums sums = kinds[order[i]];
        trace_print("%-28s %12lld %18lld   %12.6f\n", names[i], (long long)sums.calls, (long long)sums.bytes,
                    trace_seconds(sums.nanoseconds));
    }
}

void trace_write_profile(const char *how)
{
    const struct trace_process *is = &trace_process;
    const struct trace_counters *counters = trace_collect();
    trace_open_file("mpi_profile", "");
    trace_print("Data for MPI rank %d of %d:\nTimes from %s to %s.\n", is->rank, is->num_ranks, is->began, how);
    trace_print(RULE "MPI Routine                        #calls     avg. bytes      time(sec)\n" RULE);
    print_routines(counters, 0, NUM_MPI_ROUTINES);
    trace_print(RULE);
    print_totals(counters->kinds);
    print_sizes(counters);
    print_kinds(counters->kinds);
    if (counters->kinds[TRACE_NCCL].calls) {
        trace_print("\n" SHORT_RULE "NCCL calls (Tandem; the time is that of enqueueing on the GPU, not of the transfer):\n\n");
        trace_print("NCCL Routine                       #calls     avg. bytes      time(sec)\n");
        print_routines(counters, NUM_MPI_ROUTINES, NUM_ROUTINES);
    }
    trace_close_file();
}
