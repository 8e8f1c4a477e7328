/* Data of this process and its run: set during MPI_Init, read when writing profiles. */
#ifndef TANDEM_TRACE_PROCESS_H
#define TANDEM_TRACE_PROCESS_H

#include <limits.h>
#include <locale.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define HOST_LENGTH 64
#define NAME_LENGTH 128
#define REASON_LENGTH 256

/* Exchanged between the ranks at the end. */
struct trace_task {
    /* Communication: all time in MPI except MPI-IO, including the time waited. */
    double communication_seconds, waited_seconds, io_seconds, elapsed_seconds, user_seconds, system_seconds;
    int64_t max_resident_bytes, switches;
    int cpu, pid;
    char host[HOST_LENGTH];
};

struct trace_process {
    pid_t pid;
    int rank, num_ranks;
    /* Whether there is an MPI_COMM_WORLD, and the call that began recording. */
    int with_mpi;
    const char *began;
    int64_t start_nanoseconds;
    struct rusage start_usage;
    double start_epoch_seconds;
    locale_t plain_locale;
    char job[NAME_LENGTH], stamp[32], folder[PATH_MAX - 256], host[HOST_LENGTH], library[NAME_LENGTH];
};
extern struct trace_process trace_process;

/* How recording ended, and the tasks of all ranks; without them `tasks` is NULL and `missing` has the reason. */
struct trace_end {
    const char *how;
    struct trace_task own;
    const struct trace_task *tasks;
    char missing[REASON_LENGTH];
    /* Ranks of least, median and most communication time. */
    int least, median, most;
};

/* process.c */
void trace_learn_process(void);
struct trace_task trace_own_task(void);
int64_t trace_setting_number(const char *name, int64_t otherwise);
int trace_setting_yes(const char *name);
const char *trace_first_setting(const char *const *names);

/* text.c, json.c */
void trace_write_text(const struct trace_end *end);
void trace_write_json(const struct trace_end *end);

/* tasks.c */
void trace_ask_all_tasks(struct trace_end *end);
int trace_is_saved(const struct trace_end *end);

#endif
