#include "pool_map.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* The bytes of address space for `size_bytes` of pool: whole pages and the extra page; 0 on overflow. */
static uint64_t span(uint64_t size_bytes) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t whole = (size_bytes + page - 1) / page * page;
    return whole < size_bytes || whole + page < whole ? 0 : whole + page;
}

void *nnb_pool_map(int fd, uint64_t size_bytes, int writable) {
    uint64_t bytes = span(size_bytes);
    if (bytes == 0 || size_bytes == 0) {
        errno = EINVAL;
        return NULL;
    }
    void *reserved = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        return NULL;
    }
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mmap(reserved, size_bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int failed = errno;
        (void)munmap(reserved, bytes);
        errno = failed;
        return NULL;
    }
    /* A forked child must not write into memory that its parent shares with a peer. */
    (void)madvise(reserved, size_bytes, MADV_DONTFORK);
    return reserved;
}

void nnb_pool_unmap(void *address, uint64_t size_bytes) {
    if (address != NULL) {
        (void)munmap(address, span(size_bytes));
    }
}
