/* Begin and end of recording. Does nothing in a process that calls neither MPI nor NCCL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "load.h"

struct trace_process trace_process;

/* The hash of the build's inputs; launch/trace/build.py searches the file for it. */
__attribute__((used)) static const char fingerprint[] = TRACE_FINGERPRINT;

/* The value of the first of these variables that has one, or NULL; the list ends with NULL. */
static const char *first_of(const char *const *variables)
{
    for (; *variables; variables++) {
        const char *value = getenv(*variables);
        if (value && *value)
            return value;
    }
    return NULL;
}

const char *trace_launchers_rank(void)
{
    static const char *const variables[] = {"RANK", "PALS_RANKID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    return first_of(variables);
}

/* Writes what was counted, once. A forked child writes nothing. */
static void end(const char *how)
{
    static _Atomic int is_written;
    if (!trace_process.pid || getpid() != trace_process.pid || atomic_exchange(&is_written, 1))
        return;
    trace_write_profile(how);
    trace_write_events();
}

static void on_terminate(int number)
{
    end("SIGTERM");
    /* Hydra kills all ranks as soon as one has ended: those that were terminated with this one are still to write. */
    if (trace_process.num_ranks > 1)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    signal(number, SIG_DFL);
    raise(number);
}

/* Unless the program has a handler of its own; one that is set later replaces ours. */
static void watch_for_termination(void)
{
    struct sigaction before, ours = {.sa_handler = on_terminate};
    if (!sigaction(SIGTERM, NULL, &before) && before.sa_handler == SIG_DFL)
        sigaction(SIGTERM, &ours, NULL);
}

__attribute__((destructor)) static void at_exit(void)
{
    end("exit()");
}

#define EXPORTED_EXIT(name) \
    TRACE_EXPORT __attribute__((noreturn)) void name(int status) \
    { \
        end(#name "()"); \
        for (;;) \
            syscall(SYS_exit_group, status); \
    }
EXPORTED_EXIT(_exit)
EXPORTED_EXIT(_Exit)

/* mpi.h of Open MPI defines it as 1. */
#ifndef OPEN_MPI
#define OPEN_MPI 0
#endif

static void refuse_other_mpi(void)
{
    Dl_info where = {0};
    dladdr((void *)PMPI(Get_library_version), &where);
    int is_open_mpi = trace_look("ompi_mpi_comm_world") != NULL;
    if (is_open_mpi == OPEN_MPI && !(where.dli_fname && strstr(where.dli_fname, "libmpi_abi")))
        return;
    fprintf(stderr, "tandem trace: the interposer is built for %s, but the program runs with %s; build it with the running MPI: "
            "python -m launch.trace.build --mpicc PATH\n", OPEN_MPI ? "Open MPI" : "MPICH", where.dli_fname);
    _exit(127);
}

/* The number of calls whose start and duration are kept. */
static int64_t num_events(void)
{
    char *after = "";
    const char *value = getenv("TANDEM_TRACE_EVENTS");
    long long number = value ? strtoll(value, &after, 10) : 0;
    if (!*after && number >= 0 && number < 1LL << 40)
        return number;
    fprintf(stderr, "tandem trace: TANDEM_TRACE_EVENTS is '%s', not a whole number; no events are kept\n", value);
    return 0;
}

static void begin(const char *began, int rank, int num_ranks, long long job_without_batch_system)
{
    static const char *const jobs[] = {"SLURM_JOBID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", NULL};
    struct trace_process *is = &trace_process;
    const char *folder = getenv("TRACE_DIR"), *job = first_of(jobs);
    is->began = began;
    is->rank = rank;
    is->num_ranks = num_ranks;
    /* The working directory at start, even if the program changes it later. */
    if (!getcwd(is->folder, sizeof is->folder))
        strcpy(is->folder, ".");
    size_t used = folder && folder[0] == '/' ? 0 : strlen(is->folder);
    if (folder && *folder)
        snprintf(is->folder + used, sizeof is->folder - used, "%s%s", used ? "/" : "", folder);
    /* Up to the first dot, since PBS appends its server's name. */
    if (job)
        snprintf(is->job, sizeof is->job, "%.*s", (int)strcspn(job, "./"), job);
    else
        snprintf(is->job, sizeof is->job, "%lld", job_without_batch_system);
    trace_open_events(num_events());
    watch_for_termination();
    is->start_nanoseconds = trace_now();
    is->pid = getpid();
    atomic_store(&trace_recording, 1);
}

static void begin_with_world(void)
{
    long long pid_of_rank_0 = getpid();
    if (trace_process.with_mpi)
        return;
    refuse_other_mpi();
    PMPI(Bcast)(&pid_of_rank_0, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    trace_process.with_mpi = 1;
    begin("MPI_Init()", trace_ask(PMPI(Comm_rank), MPI_COMM_WORLD), trace_ask(PMPI(Comm_size), MPI_COMM_WORLD), pid_of_rank_0);
}

/* For a process without MPI: the ranks of a node have the same parent. */
void trace_begin_with_nccl(int rank, int num_ranks)
{
    static _Atomic int has_begun;
    const char *rank_of_launcher = trace_launchers_rank();
    if (!trace_process.pid && !atomic_exchange(&has_begun, 1))
        begin("the first NCCL call", rank_of_launcher ? atoi(rank_of_launcher) : rank, num_ranks, getppid());
}

TRACE_EXPORT int(MPI_Init)(int *argc, char ***argv)
{
    int result = PMPI(Init)(argc, argv);
    if (result == MPI_SUCCESS)
        begin_with_world();
    return result;
}

TRACE_EXPORT int(MPI_Init_thread)(int *argc, char ***argv, int required, int *provided)
{
    int result = PMPI(Init_thread)(argc, argv, required, provided);
    if (result == MPI_SUCCESS)
        begin_with_world();
    return result;
}

TRACE_EXPORT int(MPI_Finalize)(void)
{
    if (trace_process.with_mpi)
        end("MPI_Finalize()");
    return PMPI(Finalize)();
}

TRACE_EXPORT int(MPI_Abort)(MPI_Comm comm, int status)
{
    end("MPI_Abort()");
    return PMPI(Abort)(comm, status);
}

/* Level 0 stops counting, any other level resumes it. */
TRACE_EXPORT int MPI_Pcontrol(const int level, ...)
{
    if (trace_process.with_mpi)
        atomic_store(&trace_recording, level != 0);
    return MPI_SUCCESS;
}
