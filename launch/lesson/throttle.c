/* Preloaded, it slows a process's reading of files below a folder, as on a file system that many others use.

   TANDEM_THROTTLE_FOLDER: the folder, without links. TANDEM_THROTTLE_BYTES, TANDEM_THROTTLE_OPERATIONS: most bytes and most opens and
   reads in a second; 0: no limit. Reading through mmap or stdio is not slowed; no format reads in these ways. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FILES = 65536 };

static char is_slow[MAX_FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double free_at_seconds;

static double limit(const char *name)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : 0;
}

/* Threads queue, as at a disk: an operation begins when the one before it is over. */
static void take_time(size_t num_bytes)
{
    double rate = limit("TANDEM_THROTTLE_BYTES"), operations = limit("TANDEM_THROTTLE_OPERATIONS");
    double seconds = (rate > 0 ? (double)num_bytes / rate : 0) + (operations > 0 ? 1 / operations : 0);
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    pthread_mutex_lock(&lock);
    free_at_seconds = (free_at_seconds > now ? free_at_seconds : now) + seconds;
    double end = free_at_seconds;
    pthread_mutex_unlock(&lock);
    time.tv_sec = (time_t)end;
    time.tv_nsec = (long)(1e9 * (end - (double)time.tv_sec));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

static int after_open(int file, const char *path)
{
    const char *folder = getenv("TANDEM_THROTTLE_FOLDER");
    char whole[PATH_MAX];

    if (file < 0 || file >= MAX_FILES || !folder || !realpath(path, whole))
        return file;
    size_t length = strlen(folder);
    is_slow[file] = strncmp(whole, folder, length) == 0 && (whole[length] == '/' || whole[length] == '\0');
    if (is_slow[file])
        take_time(0);
    return file;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPEN(name, parameters, ...) \
    int name parameters \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = (mode_t)va_arg(rest, int); \
        va_end(rest); \
        REAL(name); \
        return after_open(real(__VA_ARGS__, mode), path); \
    }

#define READ(name, parameters, ...) \
    ssize_t name parameters \
    { \
        REAL(name); \
        ssize_t num_bytes = real(__VA_ARGS__); \
        if (file >= 0 && file < MAX_FILES && is_slow[file] && num_bytes >= 0) \
            take_time((size_t)num_bytes); \
        return num_bytes; \
    }

OPEN(open, (const char *path, int flags, ...), path, flags)
OPEN(open64, (const char *path, int flags, ...), path, flags)
OPEN(openat, (int at, const char *path, int flags, ...), at, path, flags)
OPEN(openat64, (int at, const char *path, int flags, ...), at, path, flags)
READ(read, (int file, void *to, size_t size), file, to, size)
READ(readv, (int file, const struct iovec *to, int num), file, to, num)
READ(pread, (int file, void *to, size_t size, off_t from), file, to, size, from)
READ(pread64, (int file, void *to, size_t size, off64_t from), file, to, size, from)
READ(preadv, (int file, const struct iovec *to, int num, off_t from), file, to, num, from)
READ(preadv64, (int file, const struct iovec *to, int num, off64_t from), file, to, num, from)
READ(preadv2, (int file, const struct iovec *to, int num, off_t from, int flags), file, to, num, from, flags)
READ(preadv64v2, (int file, const struct iovec *to, int num, off64_t from, int flags), file, to, num, from, flags)

int close(int file)
{
    REAL(close);
    if (file >= 0 && file < MAX_FILES)
        is_slow[file] = 0;
    return real(file);
}
