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
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace.h"

/* The value of the first of these variables that has one, or NULL; the list ends with NULL. */
const char *trace_first_of(const char *const *variables)
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
    return trace_first_of(variables);
}

/* Not of the interposer itself. */
static int is_real(const void *symbol)
{
    Dl_info where, here;
    return symbol && !(dladdr(symbol, &where) && dladdr((void *)is_real, &here) && where.dli_fbase == here.dli_fbase);
}

/* Searches the program first: it may hold the only valid copy of a library's data (x86-64 psABI, copy relocations).
 * What is searched stays loaded, so that the list of objects can be followed.
 */
void *trace_look(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    if (!is_real(address))
        address = dlsym(RTLD_NEXT, name);
    for (struct link_map *object = dlopen(NULL, RTLD_LAZY); object && !is_real(address); object = object->l_next) {
        void *loaded = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
        address = loaded ? dlsym(loaded, name) : NULL;
    }
    return is_real(address) ? address : NULL;
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
    char program[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    const char *name = length > 0 ? strrchr(program, '/') : NULL;
    if (name && !strncmp(name, "/python", 7) && trace_launchers_rank())
        load_mpi();
}

void *trace_find(void *_Atomic *slot, const char *name)
{
    if (*slot)
        return *slot;
    int is_of_mpi = strncmp(name, "nccl", 4) != 0;
    void *address = trace_look(name);
    if (!address && is_of_mpi) {
        load_mpi();
        address = trace_look(name);
    }
    if (!address) {
        fprintf(stderr, "tandem trace: no loaded library has %s%s\n", name,
                is_of_mpi ? "; build the interposer with the running MPI: python -m launch.trace.build --mpicc PATH" : "");
        _Exit(127);
    }
    return *slot = address;
}
