/* Shared memory that cannot shrink under its reader: memfds with every size seal, mapped with a page behind. */
#ifndef NNB_SHARED_MEMORY_H
#define NNB_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct nnb_region {
    int fd; /* -1 without one */
    uint64_t size;
    uint8_t *data;
};

/* New zeroed memory, sealed and mapped. A ResultCode. */
int nnb_region_create(struct nnb_region *region, uint64_t size, const char *name);

/* The same, which others can only map for reading. */
int nnb_region_create_protected(struct nnb_region *region, uint64_t size, const char *name);

/* Maps a foreign memfd once it has shown its seals; `fd` is owned by the region, and closed after a failure.
 * A ResultCode. */
int nnb_region_adopt(struct nnb_region *region, int fd, bool writable);

/* Whether a file has the seals of its size, which only memfds can have. */
bool nnb_is_sealed(int fd);

/* Whether a memfd can be mapped to be written: it is open for that, and no seal forbids it. */
bool nnb_may_write(int fd);

/* Unmaps and closes; a zeroed region with fd -1 is fine. `is_mapped_here` is false in a forked child, which never had
 * the mapping. */
void nnb_region_close(struct nnb_region *region, bool is_mapped_here);

#endif
