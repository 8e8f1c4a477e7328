#define _GNU_SOURCE
#include "process.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "trace.h"

struct trace_process trace_process;

/* The hash of the build's inputs; launch/trace/build.py searches the file for it. */
__attribute__((used)) static const char fingerprint[] = TRACE_FINGERPRINT;

int trace_setting_yes(const char *name)
{
    const char *value = getenv(name);
    return value && (!strcasecmp(value, "yes") || !strcmp(value, "1"));
}

/* A whole number of at least 0; an invalid value is reported and ignored. */
int64_t trace_setting_number(const char *name, int64_t otherwise)
{
    const char *value = getenv(name);
    if (!value || !*value)
        return otherwise;
    char *end;
    long long number = strtoll(value, &end, 10);
    if (!*end && number >= 0)
        return number;
    fprintf(stderr, "tandem trace: %s is '%s', not a whole number; using %lld\n", name, value, (long long)otherwise);
    return otherwise;
}

/* The value of the first of these variables that has one, or NULL; the list ends with NULL. */
const char *trace_first_setting(const char *const *names)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        if (value && *value)
            return value;
    }
    return NULL;
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Sets everything that does not need MPI. */
void trace_learn_process(void)
{
    static const char *const jobs[] = {"SLURM_JOBID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", NULL};
    const char *folder = getenv("TRACE_DIR"), *job = trace_first_setting(jobs);
    trace_process.pid = getpid();
    trace_process.plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    trace_process.start_nanoseconds = trace_now();
    getrusage(RUSAGE_SELF, &trace_process.start_usage);
    trace_process.start_epoch_seconds = trace_seconds(trace_read_clock(CLOCK_REALTIME));
    gethostname(trace_process.host, sizeof trace_process.host - 1);
    /* The working directory at start, even if the program changes it later. */
    if (!getcwd(trace_process.folder, sizeof trace_process.folder))
        strcpy(trace_process.folder, ".");
    size_t used = folder && folder[0] == '/' ? 0 : strlen(trace_process.folder);
    if (folder && *folder)
        snprintf(trace_process.folder + used, sizeof trace_process.folder - used, "%s%s", used ? "/" : "", folder);
    /* Up to the first dot, since PBS appends its server's name. */
    if (job)
        snprintf(trace_process.job, sizeof trace_process.job, "%.*s", (int)strcspn(job, "./"), job);
}

struct trace_task trace_own_task(void)
{
    const struct trace_process *is = &trace_process;
    struct trace_task task = {.cpu = sched_getcpu(), .pid = is->pid};
    struct trace_sums sums[NUM_KINDS];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    trace_sum_kinds(sums);
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        double seconds = trace_seconds(sums[kind].nanoseconds), waited = trace_seconds(sums[kind].waited_nanoseconds);
        *(kind == TRACE_IO ? &task.io_seconds : &task.communication_seconds) += seconds + waited;
        task.waited_seconds += waited;
    }
    task.elapsed_seconds = trace_seconds(trace_now() - is->start_nanoseconds);
    task.user_seconds = seconds_of(usage.ru_utime) - seconds_of(is->start_usage.ru_utime);
    task.system_seconds = seconds_of(usage.ru_stime) - seconds_of(is->start_usage.ru_stime);
    task.max_resident_bytes = usage.ru_maxrss * INT64_C(1024);
    task.switches = usage.ru_nvcsw + usage.ru_nivcsw - is->start_usage.ru_nvcsw - is->start_usage.ru_nivcsw;
    memcpy(task.host, is->host, sizeof task.host);
    return task;
}
