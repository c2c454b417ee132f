#include "trace.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "clock.h"

uint32_t nnb_trace_on;

static struct nnb_trace_area *area;
static uint32_t generation; /* of areas: a forked child's threads have joined none of its own */

/* With glibc a thread's variables are put into the space for modules that are loaded late; otherwise each
 * mark would call a function to find them. Musl has no such space, and refuses a module that needs it. */
#ifdef __GLIBC__
#define NNB_NEAR __attribute__((tls_model("initial-exec")))
#else
#define NNB_NEAR
#endif

/* The calling thread's ring. */
static _Thread_local struct {
    struct nnb_trace_record *records; /* NULL: it has none */
    struct nnb_trace_ring *ring;
    uint64_t written;
    uint32_t generation;
} mine NNB_NEAR;

uint64_t nnb_trace_ticks(uint32_t uses_tsc) {
#if defined(__x86_64__)
    if (uses_tsc) {
        return __rdtsc();
    }
#elif defined(__aarch64__)
    if (uses_tsc) {
        uint64_t ticks;
        __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#else
    (void)uses_tsc;
#endif
    return nnb_now_ns();
}

static void join(void) {
    mine.generation = generation;
    mine.written = 0;
    /* TRUST: the area is this process's own; other processes that map it can only read. */
    uint32_t index = nnb_count_u32(&area->rings, 1);
    if (index >= NNB_TRACE_RINGS) {
        mine.records = NULL;
        return;
    }
    struct nnb_trace_ring *ring = &area->ring[index];
    mine.ring = ring;
    mine.records = area->record[index];
    ring->tid = (uint32_t)syscall(SYS_gettid);
    (void)pthread_getname_np(pthread_self(), ring->name, sizeof ring->name);
    ring->in_use = 1;
}

void nnb_trace_write(uint32_t name, uint32_t kind, uint32_t flags, uint64_t argument) {
    if (mine.generation != generation) {
        join();
    }
    if (mine.records == NULL) {
        /* TRUST: the area is this process's own. */
        (void)nnb_count_u64(&area->dropped, 1);
        return;
    }
    struct nnb_trace_record *record = &mine.records[mine.written & (NNB_TRACE_RECORDS - 1)];
    uint64_t written = ++mine.written;
    nnb_store_relaxed_u64(&record->sequence, 0);
    /* SYNC POINT T: a collector that sees any later write to the record sees that it is being written. */
    nnb_fence_writes();
    record->time = nnb_trace_ticks(area->uses_tsc);
    record->argument = argument;
    record->name = name;
    record->kind = (uint8_t)kind;
    record->layer = area->name[name].layer;
    record->phase = area->name[name].phase;
    record->flags = (uint8_t)flags;
    /* SYNC POINT T: a collector that sees this number sees the whole record. */
    nnb_store_release_u64(&record->sequence, written);
    nnb_store_release_u64(&mine.ring->written, written);
}

static void put_name(uint32_t index, uint32_t layer, uint32_t phase, const char *text) {
    struct nnb_trace_name *name = &area->name[index];
    name->layer = (uint8_t)layer;
    name->phase = (uint8_t)phase;
    strncpy(name->text, text, sizeof name->text - 1);
    /* SYNC POINT T: the name is complete before it is counted. */
    nnb_store_release_u32(&area->names, index + 1);
}

uint32_t nnb_trace_add_name(uint32_t layer, uint32_t phase, const char *text) {
    /* TRUST: the area is this process's own. */
    uint32_t index = nnb_load_relaxed_u32(&area->names);
    if (index == NNB_TRACE_NAMES - 1) {
        put_name(index, NNB_LAYER_OTHER, NNB_PHASE_UNSPECIFIED, "(more names than there is room for)");
    }
    if (index >= NNB_TRACE_NAMES - 1) {
        return NNB_TRACE_NAMES - 1;
    }
    put_name(index, layer, phase, text);
    return index;
}

void nnb_trace_start(struct nnb_trace_area *memory, const char *process, uint32_t uses_tsc) {
    area = memory;
    area->magic = NNB_TRACE_MAGIC;
    area->pid = (uint32_t)getpid();
    area->uses_tsc = uses_tsc;
    strncpy(area->process, process, sizeof area->process - 1);
    area->start_ns = nnb_now_ns();
    area->start_ticks = nnb_trace_ticks(uses_tsc);
#define NNB_TRACE_SITE(name, layer, phase, text) put_name(NNB_SITE_##name, layer, phase, text);
    NNB_TRACE_SITES_OF(NNB_TRACE_SITE)
#undef NNB_TRACE_SITE
    generation++;
    nnb_trace_on = 1;
}

void nnb_trace_stop(void) { nnb_trace_on = 0; }
