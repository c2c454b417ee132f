/* Host-accessible memory that a program allocates through the engine: each allocation is shared memory, which runs use in
 * place. */
#ifndef NNB_EP_POOLS_H
#define NNB_EP_POOLS_H

#include <nnburst.h>

#include "onnxruntime_ep/ort.h"

/* The allocator, one for the library; `info` describes it, and is the factory's. */
struct ort_allocator *nnb_pools_allocator(ort_object info);

/* Copies between host-accessible memory and the CPU's, which are both this process's. */
struct ort_data_transfer *nnb_pools_transfer(void);

/* The shared memory that `bytes` bytes at an address lie in, held for the caller, and where; NULL for any other memory.
 * Any thread. */
nnburst_memory *nnb_pools_find(const void *address, size_t bytes, size_t *offset);

#endif
