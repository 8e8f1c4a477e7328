/* Lookup of the real functions.
 *
 * The library links neither MPI nor NCCL, so that it can be loaded into any program: bash, mpiexec, a Python without MPI.
 * Each real function is looked up at its first call. Python loads its extensions, and with them MPI, with RTLD_LOCAL, invisible to
 * dlsym(RTLD_NEXT); therefore all loaded objects are searched.
 *
 * mpi4py's wheels load MPI only if the process has none. The interposer's functions look like an MPI, so it loads MPI itself: at
 * the first call without one, and at start in a Python that a launcher started as a rank.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace.h"

#define MAX_OBJECTS 4096

struct names {
    char *name[MAX_OBJECTS];
    int num;
};

/* Runs under the loader's lock: must not call dlopen. */
static int take_name(struct dl_phdr_info *object, size_t size, void *into)
{
    struct names *names = into;
    if (object->dlpi_name && object->dlpi_name[0] && names->num < MAX_OBJECTS)
        names->name[names->num++] = strdup(object->dlpi_name);
    return 0;
}

static int is_own(const void *symbol)
{
    Dl_info where, here;
    return dladdr(symbol, &where) && dladdr((void *)trace_find, &here) && where.dli_fbase == here.dli_fbase;
}

static void *look_in_loaded_objects(const char *name)
{
    struct names names = {.num = 0};
    void *address = NULL;
    dl_iterate_phdr(take_name, &names);
    for (int i = 0; i < names.num; i++) {
        void *object = address ? NULL : dlopen(names.name[i], RTLD_LAZY | RTLD_NOLOAD);
        if (object) {
            void *symbol = dlsym(object, name);
            if (symbol && !is_own(symbol))
                address = symbol;
            dlclose(object);
        }
        free(names.name[i]);
    }
    return address;
}

/* The MPI of MPI4PY_LIBMPI, the one that the loader finds by name, or the one of the build. */
static void load_mpi(void)
{
    const char *folder_end = strrchr(TRACE_LIBMPI, '/');
    const char *const libraries[] = {getenv("MPI4PY_LIBMPI"), folder_end ? folder_end + 1 : NULL, TRACE_LIBMPI};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (libraries[i] && *libraries[i] && dlopen(libraries[i], RTLD_LAZY | RTLD_GLOBAL))
            return;
}

__attribute__((constructor)) static void load_mpi_for_mpi4py(void)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    const char *name = strrchr(program, '/');
    if (name && !strncmp(name, "/python", 7) && trace_launchers_rank())
        load_mpi();
}

/* Searches the program first: it may hold the only valid copy of a library's data (x86-64 psABI, copy relocations). */
void *trace_look(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    if (address && is_own(address))
        address = dlsym(RTLD_NEXT, name);
    return address ? address : look_in_loaded_objects(name);
}

void *trace_find(void *_Atomic *slot, const char *name)
{
    void *address = trace_look(name);
    if (!address && !strncmp(name, "PMPI", 4)) {
        load_mpi();
        address = trace_look(name);
    }
    if (!address) {
        int is_of_mpi = name[0] == 'P' || strstr(name, "mpi") != NULL;
        fprintf(stderr, "tandem trace: no loaded library has %s%s\n", name,
                is_of_mpi ? "; build the interposer with the running MPI: python -m launch.trace.build --mpicc PATH" : "");
        _exit(127);
    }
    atomic_store_explicit(slot, address, memory_order_relaxed);
    return address;
}
