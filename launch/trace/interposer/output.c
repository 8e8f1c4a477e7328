#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

static void flush(struct trace_file *file)
{
    size_t written = 0;
    while (written < file->used && !file->failed) {
        ssize_t now = write(file->descriptor, file->buffer + written, file->used - written);
        if (now > 0)
            written += (size_t)now;
        else if (errno != EINTR)
            file->failed = errno;
    }
    file->used = 0;
}

void trace_path(char *path, size_t length, const char *kind, const char *suffix)
{
    const struct trace_process *is = &trace_process;
    snprintf(path, length, "%s/%s.%s%s%s.%d%s", is->folder, kind, is->job, is->stamp[0] ? "." : "", is->stamp, is->rank, suffix);
}

void trace_open_file(struct trace_file *file, const char *kind, const char *suffix)
{
    file->failed = 0;
    file->used = 0;
    /* The program's locale may have a decimal comma. */
    file->before = trace_process.plain_locale ? uselocale(trace_process.plain_locale) : (locale_t)0;
    trace_path(file->path, sizeof file->path, kind, suffix);
    /* A signal handler may interrupt a write, and write a file of the same name. */
    static _Atomic int serial;
    snprintf(file->temporary, sizeof file->temporary, "%s.%d.part", file->path, atomic_fetch_add(&serial, 1));
    mkdir(trace_process.folder, 0777);
    file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->descriptor < 0)
        file->failed = errno;
}

void trace_put(struct trace_file *file, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length) {
        size_t room = sizeof file->buffer - file->used;
        size_t part = length < room ? length : room;
        memcpy(file->buffer + file->used, from, part);
        file->used += part;
        from += part;
        length -= part;
        if (file->used == sizeof file->buffer)
            flush(file);
    }
}

void trace_print(struct trace_file *file, const char *format, ...)
{
    char line[PATH_MAX + 512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    trace_put(file, line, length < (int)sizeof line ? (size_t)length : sizeof line - 1);
}

void trace_close_file(struct trace_file *file)
{
    flush(file);
    if (file->before)
        uselocale(file->before);
    if (file->descriptor >= 0)
        close(file->descriptor);
    if (!file->failed && rename(file->temporary, file->path))
        file->failed = errno;
    if (file->failed) {
        unlink(file->temporary);
        char line[PATH_MAX + 128];
        int length = snprintf(line, sizeof line, "tandem trace: %s cannot be written (%s); set TRACE_DIR to another folder\n", file->path,
                              strerror(file->failed));
        if (write(STDERR_FILENO, line, (size_t)length) < 0)
            return;
    }
}
