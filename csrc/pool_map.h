/* Maps sealed shared memory, with a readable page after it. */
#ifndef NNB_POOL_MAP_H
#define NNB_POOL_MAP_H

#include <stdint.h>

/* Maps `size_bytes` (> 0) of `fd` from its start, shared, readable and (writable != 0) writable. One
 * anonymous readable page follows, since engines read a few bytes past the end of an input. The mapping
 * is not inherited by fork. Returns NULL and sets errno on failure. */
void *nnb_pool_map(int fd, uint64_t size_bytes, int writable);

/* Unmaps memory from nnb_pool_map of the same size. */
void nnb_pool_unmap(void *address, uint64_t size_bytes);

#endif
