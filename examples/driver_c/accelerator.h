/* An accelerator made up in software, as a vendor's library shows one: memory that is reached by copies alone, an
 * engine that copies (DMA), an engine that computes, each with a queue, and a clock that counts ticks of its own.
 * Nothing here knows of nnburst. */
#ifndef ACCELERATOR_H
#define ACCELERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCELERATOR_TICK_NS 5u /* 200 MHz */
#define ACCELERATOR_ALIGNMENT 256u

/* A place in the accelerator's memory; 0 stands for none. */
typedef uint64_t accelerator_address;

enum accelerator_result {
    ACCELERATOR_OK,
    ACCELERATOR_BUSY,      /* another process has it */
    ACCELERATOR_NO_NODE,   /* its node cannot be opened */
    ACCELERATOR_NO_MEMORY,
    ACCELERATOR_LATE,      /* the deadline came before the work was done */
};

struct accelerator_settings {
    const char *node;      /* file that its owner locks; NULL: each process has one of its own */
    uint32_t warm_up_ms;
    uint64_t memory_bytes;
};

struct accelerator;

enum accelerator_result accelerator_open(const struct accelerator_settings *, struct accelerator **);
void accelerator_close(struct accelerator *);

/* Memory of the accelerator, zeroed; 0 if there is not so much. */
accelerator_address accelerator_allocate(struct accelerator *, uint64_t bytes);
void accelerator_free(struct accelerator *, accelerator_address);

/* A copy by the DMA engine: `in` to the accelerator, else from there. */
struct accelerator_copy {
    accelerator_address at;
    void *host;
    uint64_t bytes;
    bool in;
};

/* What the computing engine runs: called with the memory's first byte, step by step. */
typedef void (*accelerator_step)(const void *program, uint32_t step, uint8_t *memory);

/* Runs, each to its end before it returns; adds to `ticks` what the engine took by its clock. `deadline_ns` is on
 * CLOCK_BOOTTIME, UINT64_MAX for none; it is looked at while the work waits, and between two copies or steps. */
enum accelerator_result accelerator_copy(struct accelerator *, const struct accelerator_copy *, uint32_t count,
                                         uint64_t deadline_ns, uint64_t *ticks);
enum accelerator_result accelerator_compute(struct accelerator *, accelerator_step, const void *program,
                                            uint32_t steps, uint64_t deadline_ns, uint64_t *ticks);

/* The engine stops until the deadline, or until the accelerator is closed. */
enum accelerator_result accelerator_hang(struct accelerator *, uint64_t deadline_ns);

#endif
