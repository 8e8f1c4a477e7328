/* Atomic file output. Does not call malloc, so that a signal handler can use it. */
#ifndef TANDEM_TRACE_OUTPUT_H
#define TANDEM_TRACE_OUTPUT_H

#include <limits.h>
#include <locale.h>
#include <stddef.h>

struct trace_file {
    int descriptor, failed;
    size_t used;
    locale_t before;
    char path[PATH_MAX], temporary[PATH_MAX + 32], buffer[8192];
};

/* Opens `kind`.<job>.<rank>`suffix` in the profiles' folder. */
void trace_open_file(struct trace_file *file, const char *kind, const char *suffix);
void trace_put(struct trace_file *file, const void *bytes, size_t length);
__attribute__((format(printf, 2, 3))) void trace_print(struct trace_file *file, const char *format, ...);
void trace_close_file(struct trace_file *file);
void trace_path(char *path, size_t length, const char *kind, const char *suffix);

#endif
