/* Allocates host-accessible memory for the engine: each allocation is shared memory, which runs use in place.
 * */
#ifndef NNB_EP_POOLS_H
#define NNB_EP_POOLS_H

#include <nnburst.h>

#include "onnxruntime_ep/ort.h"

/* The allocator, one for the library; `info` describes it and belongs to the factory. */
struct ort_allocator *nnb_pools_allocator(ort_object info);

/* The functions that copy between host-accessible memory and the CPU's; both belong to this process. */
struct ort_data_transfer *nnb_pools_transfer(void);

/* Finds the shared memory with `bytes` bytes at an address, held for the caller, and the offset; NULL for
 * other memory. Any thread. */
nnburst_memory *nnb_pools_find(const void *address, size_t bytes, size_t *offset);

#endif
