/* Begin and end of recording, and writing of profiles. Does nothing in a process that calls neither MPI nor NCCL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "output.h"
#include "process.h"

static _Atomic int is_written;
static const char *_Atomic failed_routine;
static struct sigaction terminate_before;

/* All ranks use rank 0's settings: a barrier that only some ranks call would hang. */
struct settings {
    int64_t pid, epoch_seconds, with_barrier, control_limit_bytes, events;
};

static void write_profile(const struct trace_end *end)
{
    if (trace_is_saved(end)) {
        trace_write_text(end);
        trace_write_json(end);
    } else {
        /* Left by a signal that the program survived. */
        char path[PATH_MAX];
        trace_path(path, sizeof path, "mpi_profile", "");
        unlink(path);
        trace_path(path, sizeof path, "mpi_profile", ".json");
        unlink(path);
    }
    trace_write_events();
}

/* Writes this rank's counters without communication, and tells whether. A forked child writes nothing. */
static int write_own_profile(const char *how)
{
    if (!trace_process.pid || getpid() != trace_process.pid || atomic_load(&is_written))
        return 0;
    int is_frozen = trace_freeze();
    struct trace_end end = {.how = how, .own = trace_own_task()};
    if (trace_process.with_mpi)
        snprintf(end.missing, sizeof end.missing, "this rank ended by %s and not by MPI_Finalize()", how);
    else
        snprintf(end.missing, sizeof end.missing, "this rank did not call MPI_Init()");
    write_profile(&end);
    if (is_frozen)
        trace_thaw();
    return 1;
}

static void on_terminate(int number, siginfo_t *info, void *context)
{
    int has_written = write_own_profile("SIGTERM");
    if (terminate_before.sa_flags & SA_SIGINFO)
        terminate_before.sa_sigaction(number, info, context);
    else if (terminate_before.sa_handler == SIG_DFL) {
        /* Hydra kills all ranks as soon as one has ended: those that were terminated with this one are still to write. */
        static const struct timespec grace = {.tv_sec = 1};
        if (has_written && trace_process.num_ranks > 1)
            nanosleep(&grace, NULL);
        sigaction(number, &terminate_before, NULL);
        raise(number);
    } else
        terminate_before.sa_handler(number);
}

/* The program's own handler, if any, is called after ours; one that is set later replaces ours. */
static void watch_for_termination(void)
{
    static _Atomic int is_watching;
    if (atomic_exchange(&is_watching, 1) || sigaction(SIGTERM, NULL, &terminate_before))
        return;
    if (!(terminate_before.sa_flags & SA_SIGINFO) && terminate_before.sa_handler == SIG_IGN)
        return;
    struct sigaction ours = terminate_before;
    ours.sa_sigaction = on_terminate;
    /* Writing needs more stack than Python's faulthandler reserves for signals. */
    ours.sa_flags = (ours.sa_flags | SA_SIGINFO) & ~SA_ONSTACK;
    sigaction(SIGTERM, &ours, NULL);
}

__attribute__((destructor)) static void at_exit(void)
{
    write_own_profile("exit()");
}

#define EXPORTED_EXIT(name) \
    TRACE_EXPORT __attribute__((noreturn)) void name(int status) \
    { \
        write_own_profile(#name "()"); \
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
    char running[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    Dl_info where = {0};
    PMPI(Get_library_version)(running, &length);
    dladdr((void *)PMPI(Get_library_version), &where);
    int is_open_mpi = trace_look("ompi_mpi_comm_world") != NULL;
    int is_standard_abi = where.dli_fname && strstr(where.dli_fname, "libmpi_abi");
    if (is_open_mpi != OPEN_MPI || is_standard_abi) {
        fprintf(stderr, "tandem trace: the interposer is built for %s, but the program runs with %s; build it with the running MPI: "
                "python -m launch.trace.build --mpicc PATH\n",
                OPEN_MPI ? "Open MPI" : "MPICH", where.dli_fname ? where.dli_fname : running);
        _exit(127);
    }
    snprintf(trace_process.library, sizeof trace_process.library, "%.*s", (int)strcspn(running, "\n"), running);
}

static void agree_on_settings(void)
{
    struct settings settings = {
        .pid = getpid(),
        .epoch_seconds = (int64_t)trace_process.start_epoch_seconds,
        .with_barrier = trace_setting_yes("COLLECTIVE_BARRIER"),
        .control_limit_bytes = trace_setting_number("TANDEM_TRACE_CONTROL_BYTES", trace_control_limit_bytes),
        .events = trace_setting_number("TANDEM_TRACE_EVENTS", 0),
    };
    PMPI(Bcast)(&settings, (int)sizeof settings, MPI_BYTE, 0, MPI_COMM_WORLD);
    trace_with_barrier = (int)settings.with_barrier;
    trace_control_limit_bytes = settings.control_limit_bytes;
    if (!trace_process.job[0])
        snprintf(trace_process.job, sizeof trace_process.job, "%lld", (long long)settings.pid);
    if (trace_setting_yes("ADD_TIMESTAMP")) {
        time_t seconds = (time_t)settings.epoch_seconds;
        struct tm utc;
        strftime(trace_process.stamp, sizeof trace_process.stamp, "%Y%m%dT%H%M%SZ", gmtime_r(&seconds, &utc));
    }
    trace_open_events(settings.events);
}

static int64_t epoch_of(int64_t monotonic_nanoseconds)
{
    return monotonic_nanoseconds - trace_clock.monotonic_nanoseconds + trace_clock.epoch_nanoseconds;
}

/* Cristian's algorithm (Distributed Computing 3, 1989): half of the shortest round trip to rank 0 bounds the error. */
static void compare_clocks_with_rank_0(void)
{
    enum { NUM_QUESTIONS = 10 };
    MPI_Comm comm;
    trace_clock.offset_error_nanoseconds = trace_process.rank ? INT64_MAX : 0;
    PMPI(Comm_dup)(MPI_COMM_WORLD, &comm);
    for (int question = 0; question < NUM_QUESTIONS * (trace_process.num_ranks - 1); question++) {
        int asking = 1 + question / NUM_QUESTIONS;
        int64_t asked = trace_now(), answer = 0;
        if (trace_process.rank == 0) {
            PMPI(Recv)(NULL, 0, MPI_BYTE, asking, 0, comm, MPI_STATUS_IGNORE);
            answer = epoch_of(trace_now());
            PMPI(Send)(&answer, (int)sizeof answer, MPI_BYTE, asking, 0, comm);
        } else if (trace_process.rank == asking) {
            PMPI(Send)(NULL, 0, MPI_BYTE, 0, 0, comm);
            PMPI(Recv)(&answer, (int)sizeof answer, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE);
            int64_t half = (trace_now() - asked) / 2;
            if (half < trace_clock.offset_error_nanoseconds) {
                trace_clock.offset_error_nanoseconds = half;
                trace_clock.offset_nanoseconds = answer - epoch_of(asked + half);
            }
        }
    }
    PMPI(Comm_free)(&comm);
}

static void begin_with_world(void)
{
    if (trace_process.with_mpi)
        return;
    refuse_other_mpi();
    trace_learn_process();
    trace_process.rank = trace_ask(PMPI(Comm_rank), MPI_COMM_WORLD);
    trace_process.num_ranks = trace_ask(PMPI(Comm_size), MPI_COMM_WORLD);
    trace_process.with_mpi = 1;
    trace_process.began = "MPI_Init()";
    agree_on_settings();
    if (atomic_load(&trace_with_events))
        compare_clocks_with_rank_0();
    watch_for_termination();
    trace_process.start_nanoseconds = trace_now();
    atomic_store(&trace_recording, 1);
}

static int first_number_of(const char *const *names, int otherwise)
{
    const char *value = trace_first_setting(names);
    return value ? atoi(value) : otherwise;
}

/* For a process without MPI_COMM_WORLD: its rank is from the launcher's variables or NCCL's arguments. */
void trace_begin_alone(const char *began, int rank, int num_ranks)
{
    static const char *const ranks[] = {"RANK", "PALS_RANKID", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    static const char *const sizes[] = {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", NULL};
    static _Atomic int has_begun;
    if (trace_process.pid || atomic_exchange(&has_begun, 1))
        return;
    trace_learn_process();
    trace_process.began = began;
    trace_process.rank = first_number_of(ranks, rank);
    trace_process.num_ranks = first_number_of(sizes, num_ranks);
    if (!trace_process.job[0])
        snprintf(trace_process.job, sizeof trace_process.job, "%d", getppid());
    trace_control_limit_bytes = trace_setting_number("TANDEM_TRACE_CONTROL_BYTES", trace_control_limit_bytes);
    trace_open_events(trace_setting_number("TANDEM_TRACE_EVENTS", 0));
    trace_clock.offset_error_nanoseconds = -1;
    watch_for_termination();
    atomic_store(&trace_recording, 1);
}

void trace_note_failure(const char *routine)
{
    const char *none = NULL;
    if (atomic_load_explicit(&trace_recording, memory_order_relaxed))
        atomic_compare_exchange_strong(&failed_routine, &none, routine);
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
    if (trace_process.with_mpi && getpid() == trace_process.pid && !atomic_load(&is_written)) {
        atomic_store(&trace_recording, 0);
        struct trace_end end = {.how = "MPI_Finalize()", .own = trace_own_task()};
        const char *failed = atomic_load(&failed_routine);
        if (failed)
            snprintf(end.missing, sizeof end.missing, "%s failed on this rank, and other ranks may hang after a failure", failed);
        else
            trace_ask_all_tasks(&end);
        write_profile(&end);
        atomic_store(&is_written, 1);
    }
    return PMPI(Finalize)();
}

TRACE_EXPORT int(MPI_Abort)(MPI_Comm comm, int status)
{
    write_own_profile("MPI_Abort()");
    return PMPI(Abort)(comm, status);
}

/* Level 0 stops counting, any other level resumes it. */
TRACE_EXPORT int MPI_Pcontrol(const int level, ...)
{
    if (trace_process.with_mpi)
        atomic_store(&trace_recording, level != 0 && !atomic_load(&is_written));
    return MPI_SUCCESS;
}
