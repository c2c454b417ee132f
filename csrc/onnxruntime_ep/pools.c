#include "onnxruntime_ep/pools.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

struct pool {
    uint8_t *data;
    size_t size;
    nnburst_memory *memory;
};

/* Sorted by address. */
static struct pool *pools;
static size_t pool_count;
static size_t pool_room;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* The first pool that begins after an address. */
static size_t position(const void *address) {
    size_t low = 0;
    size_t high = pool_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)pools[middle].data <= (uintptr_t)address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool insert(struct pool pool) {
    if (pool_count == pool_room) {
        size_t room = 2 * pool_room + 16;
        struct pool *more = realloc(pools, room * sizeof *more);
        if (more == NULL) {
            return false;
        }
        pools = more;
        pool_room = room;
    }
    size_t at = position(pool.data);
    memmove(&pools[at + 1], &pools[at], (pool_count - at) * sizeof *pools);
    pools[at] = pool;
    pool_count++;
    return true;
}

static void *alloc(struct ort_allocator *allocator, size_t size) {
    (void)allocator;
    struct pool pool = {.size = size == 0 ? 1 : size};
    if (nnburst_create_memory(pool.size, &pool.memory) != NNBURST_NO_ERROR) {
        return NULL;
    }
    pool.data = nnburst_memory_data(pool.memory);
    (void)pthread_rwlock_wrlock(&lock);
    bool inserted = insert(pool);
    (void)pthread_rwlock_unlock(&lock);
    if (!inserted) {
        nnburst_free_memory(pool.memory);
    }
    return inserted ? pool.data : NULL;
}

static void release(struct ort_allocator *allocator, void *data) {
    (void)allocator;
    nnburst_memory *memory = NULL;
    (void)pthread_rwlock_wrlock(&lock);
    size_t behind = data == NULL ? 0 : position(data);
    if (behind != 0 && pools[behind - 1].data == data) {
        memory = pools[behind - 1].memory;
        memmove(&pools[behind - 1], &pools[behind], (pool_count - behind) * sizeof *pools);
        pool_count--;
    }
    if (pool_count == 0) {
        free(pools);
        pools = NULL;
        pool_room = 0;
    }
    (void)pthread_rwlock_unlock(&lock);
    nnburst_free_memory(memory);
}

nnburst_memory *nnb_pools_find(const void *address, size_t bytes, size_t *offset) {
    nnburst_memory *found = NULL;
    (void)pthread_rwlock_rdlock(&lock);
    size_t behind = position(address);
    if (behind != 0) {
        const struct pool *pool = &pools[behind - 1];
        size_t at = (size_t)((uintptr_t)address - (uintptr_t)pool->data);
        if (at < pool->size && bytes <= pool->size - at) {
            found = pool->memory;
            nnb_hold_memory(found);
            *offset = at;
        }
    }
    (void)pthread_rwlock_unlock(&lock);
    return found;
}

static ort_object memory_info;

static ort_object info(const struct ort_allocator *allocator) {
    (void)allocator;
    return memory_info;
}

struct ort_allocator *nnb_pools_allocator(ort_object described) {
    static struct ort_allocator allocator = {
        .version = ORT_VERSION, .alloc = alloc, .free = release, .info = info, .reserve = alloc};
    memory_info = described;
    return &allocator;
}

/* -- copies ----------------------------------------------------------------------------------------------- */

static bool is_host(ort_object memory) {
    int type = ((int (*)(ort_object))nnb_ort.ep[ORT_EP_MEMORY_DEVICE_TYPE])(memory);
    int kind = ((int (*)(ort_object))nnb_ort.ep[ORT_EP_MEMORY_TYPE])(memory);
    return type == ORT_DEVICE_CPU || kind == ORT_MEMORY_HOST_ACCESSIBLE;
}

static void nothing_to_release(struct ort_data_transfer *transfer) { (void)transfer; }

static bool can_copy(const struct ort_data_transfer *transfer, ort_object from, ort_object to) {
    (void)transfer;
    return is_host(from) && is_host(to);
}

static ort_status copy(struct ort_data_transfer *transfer, const ort_object *from, void **to, void **streams,
                       size_t count) {
    (void)transfer;
    (void)streams;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        size_t room = 0;
        void *source = NULL;
        void *target = NULL;
        ORT_TRY(ORT(ORT_TENSOR_BYTES, ort_object, size_t *)(from[i], &bytes));
        ORT_TRY(ORT(ORT_TENSOR_BYTES, ort_object, size_t *)(to[i], &room));
        ORT_TRY(ORT(ORT_GET_TENSOR_DATA, ort_object, void **)(from[i], &source));
        ORT_TRY(ORT(ORT_GET_TENSOR_DATA, ort_object, void **)(to[i], &target));
        if (bytes != room) {
            return nnb_ort_status(ORT_INVALID_ARGUMENT, "%zu bytes are to be copied to %zu", bytes, room);
        }
        if (bytes != 0) {
            memmove(target, source, bytes);
        }
    }
    return NULL;
}

struct ort_data_transfer *nnb_pools_transfer(void) {
    static struct ort_data_transfer transfer = {
        .version = ORT_VERSION, .release = nothing_to_release, .can_copy = can_copy, .copy = copy};
    return &transfer;
}
