/* Preloaded into a server: counts how often it asks for memory, in the file that ALLOCATIONS names. Works with glibc, whose own
 * functions are these below. With TRACE set, each allocation after the file's second word is not zero prints where it comes from. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

struct shared {
    _Atomic uint64_t count;
    _Atomic uint64_t traced;
};
static struct shared own;
static struct shared *shared = &own;
static __thread int inside;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ALLOCATIONS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = file < 0 ? MAP_FAILED : mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        _exit(70);
    close(file);
    void *frame[1];
    backtrace(frame, 1); /* It loads a library the first time. */
    shared = memory;
}

static void counted(void) {
    atomic_fetch_add(&shared->count, 1);
    if (atomic_load(&shared->traced) && !inside) {
        void *frames[24];
        inside = 1;
        backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
        (void)!write(2, "\n", 1);
        inside = 0;
    }
}

void *malloc(size_t bytes) { counted(); return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { counted(); return __libc_calloc(count, bytes); }
void *realloc(void *memory, size_t bytes) { counted(); return __libc_realloc(memory, bytes); }
void *memalign(size_t alignment, size_t bytes) { counted(); return __libc_memalign(alignment, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { counted(); return __libc_memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    counted();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12;
}
