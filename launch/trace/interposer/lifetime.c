/* Begin and end of recording. Does nothing in a process that calls neither MPI nor NCCL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

static struct trace_process process;

/* Writes what was counted, once. A forked child writes nothing. */
static void end(const char *how)
{
    static _Atomic int is_written;
    if (process.pid && getpid() == process.pid && !atomic_exchange(&is_written, 1))
        trace_write(&process, how);
}

static void on_terminate(int number)
{
    end("SIGTERM");
    /* Hydra kills all ranks as soon as one has ended: those that were terminated with this one are still to write. */
    if (process.num_ranks > 1)
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

TRACE_EXPORT __attribute__((noreturn)) void _exit(int status)
{
    end("_exit()");
    for (;;)
        syscall(SYS_exit_group, status);
}

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

static void begin(int rank, int num_ranks, long long job_without_batch_system)
{
    static const char *const jobs[] = {"SLURM_JOBID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", NULL};
    const char *folder = getenv("TRACE_DIR"), *job = trace_first_of(jobs);
    char here[PATH_MAX + 1] = "";
    process.rank = rank;
    process.num_ranks = num_ranks;
    /* The working directory at start, even if the program changes it later. */
    if ((!folder || folder[0] != '/') && getcwd(here, sizeof here))
        strcat(here, "/");
    snprintf(process.folder, sizeof process.folder, "%s%s", here, folder && *folder ? folder : ".");
    /* Up to the first dot, since PBS appends its server's name. */
    if (job)
        snprintf(process.job, sizeof process.job, "%.*s", (int)strcspn(job, "./"), job);
    else
        snprintf(process.job, sizeof process.job, "%lld", job_without_batch_system);
    watch_for_termination();
    process.start_nanoseconds = trace_now();
    process.pid = getpid();
    trace_recording = 1;
}

static int begin_with_world(int result_of_init)
{
    long long pid_of_rank_0 = getpid();
    if (result_of_init != MPI_SUCCESS || process.with_mpi)
        return result_of_init;
    refuse_other_mpi();
    PMPI(Bcast)(&pid_of_rank_0, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    process.with_mpi = 1;
    begin(trace_ask(PMPI(Comm_rank), MPI_COMM_WORLD), trace_ask(PMPI(Comm_size), MPI_COMM_WORLD), pid_of_rank_0);
    return result_of_init;
}

/* For a process without MPI: the ranks of a node have the same parent. */
void trace_begin_with_nccl(int rank, int num_ranks)
{
    static _Atomic int has_begun;
    const char *rank_of_launcher = trace_launchers_rank();
    if (!process.pid && !atomic_exchange(&has_begun, 1))
        begin(rank_of_launcher ? atoi(rank_of_launcher) : rank, num_ranks, getppid());
}

TRACE_EXPORT int(MPI_Init)(int *argc, char ***argv)
{
    return begin_with_world(PMPI(Init)(argc, argv));
}

TRACE_EXPORT int(MPI_Init_thread)(int *argc, char ***argv, int required, int *provided)
{
    return begin_with_world(PMPI(Init_thread)(argc, argv, required, provided));
}

TRACE_EXPORT int(MPI_Finalize)(void)
{
    if (process.with_mpi)
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
    if (process.with_mpi)
        trace_recording = level != 0;
    return MPI_SUCCESS;
}
