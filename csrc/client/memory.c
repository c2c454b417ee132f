/* Shared memory of programs; it is counted, and freed with the last request that is bound to it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client.h"

void nnb_hold_memory(nnburst_memory *memory) { (void)nnb_count_u32(&memory->references, 1); }

static int own_memory(nnburst_memory **memory, const struct nnb_region *region) {
    nnburst_memory *made = calloc(1, sizeof *made);
    if (made == NULL) {
        struct nnb_region unused = *region;
        nnb_region_close(&unused, true);
        return nnb_fail_short_of_memory();
    }
    made->region = *region;
    nnb_count_forks();
    made->forks = nnb_process_generation;
    nnb_hold_memory(made);
    *memory = made;
    return NNBURST_NO_ERROR;
}

int nnburst_create_memory(size_t size, nnburst_memory **memory) {
    if (memory == NULL) {
        return nnb_fail_null("memory");
    }
    struct nnb_region region;
    int code = nnb_region_create(&region, size, "pool");
    return code != NNBURST_NO_ERROR ? code : own_memory(memory, &region);
}

int nnburst_memory_from_fd(int fd, nnburst_memory **memory) {
    if (memory == NULL) {
        return nnb_fail_null("memory");
    }
    struct nnb_region region;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return errno == EMFILE ? nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "this process has no descriptors left")
                               : nnb_fail(NNBURST_BAD_DATA, "fd: %d is not open", fd);
    }
    /* Memory that is sealed against writing holds inputs only. */
    bool is_writable = nnb_may_write(copy);
    int code = nnb_region_adopt(&region, copy, is_writable);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    code = own_memory(memory, &region);
    if (code == NNBURST_NO_ERROR) {
        (*memory)->is_read_only = !is_writable;
    }
    return code;
}

void *nnburst_memory_data(const nnburst_memory *memory) {
    return memory == NULL || memory->forks != nnb_process_generation ? NULL : memory->region.data;
}

size_t nnburst_memory_size(const nnburst_memory *memory) { return memory == NULL ? 0 : memory->region.size; }

int nnburst_memory_fd(const nnburst_memory *memory) { return memory == NULL ? -1 : memory->region.fd; }

void nnburst_free_memory(nnburst_memory *memory) {
    if (memory != NULL && nnb_drop_u32(&memory->references) == 1) {
        nnb_region_close(&memory->region, memory->forks == nnb_process_generation);
        free(memory);
    }
}
