/* The memory of a queue of csrc/queue.h: its descriptor as a record, its regions, and their transfer to other
 * processes.
 *
 * A record is 136 bytes: the number of grantors, the quantum, the flavour and 0 as u32, then five grantors of u32 flags, u32 number
 * of the fd, u64 offset and u64 extent, as fmq/MQDescriptor.h of the original has them in memory. A region that has a name begins
 * with a header (src/nnburst/fmq/named_queue.py):
 *
 *     0        8        12       16                       1024
 *     | magic  | pid    | 0      | record                 | flag of a broadcast, or the parts … | */
#ifndef NNB_CLIENT_QUEUE_MEMORY_H
#define NNB_CLIENT_QUEUE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/shared_memory.h"

/* Read counter, write counter, data, event flag, words of the ends. */
#define NNB_QUEUE_GRANTORS 5u
#define NNB_QUEUE_RECORD_BYTES 136u

struct nnb_grantor {
    uint32_t flags;
    uint32_t fd_index;
    uint64_t offset;
    uint64_t extent;
};

struct nnb_queue_record {
    uint32_t count;
    uint32_t quantum;
    uint32_t flavor; /* 1 synchronized, 2 unsynchronized: its flag lies in the second region */
    uint32_t unused;
    struct nnb_grantor grantors[NNB_QUEUE_GRANTORS];
};

struct nnb_queue_memory {
    struct nnb_queue_record record; /* checked */
    struct nnb_region regions[2];
    uint32_t region_count;
    bool is_read_only; /* all but the event flag: a broadcast's reader */
    char *name;        /* of a maker, or of an opener that takes it away; or NULL */
    bool is_opened;    /* the name is taken away by nnb_queue_memory_take_name alone */
};

/* Makes and lays out new memory; `name` may be NULL. `reopen` is the word of csrc/queue.h. All of these
 * functions return a ResultCode. */
int nnb_queue_memory_create(struct nnb_queue_memory *memory, const char *name, uint64_t quantum,
                            uint64_t capacity, bool is_broadcast, uint32_t reopen);

/* Waits until a queue has that name. */
int nnb_queue_memory_open(struct nnb_queue_memory *memory, const char *name, uint64_t quantum,
                          uint64_t deadline_ns);

/* Removes the name of memory whose end has been opened, unless other processes may use it later. */
void nnb_queue_memory_take_name(struct nnb_queue_memory *memory);

int nnb_queue_memory_send(const struct nnb_queue_memory *memory, int connection);
int nnb_queue_memory_receive(struct nnb_queue_memory *memory, int connection, uint64_t quantum,
                             uint64_t deadline_ns);

/* The address of a part. */
uint8_t *nnb_queue_part(const struct nnb_queue_memory *memory, uint32_t grantor);

/* Frees the memory, and removes a remaining name unless this is a forked child. Zeroed memory with fds of -1
 * is allowed. */
void nnb_queue_memory_close(struct nnb_queue_memory *memory, bool is_mapped_here);

#endif
