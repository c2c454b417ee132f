#include "accelerator.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_late(uint64_t deadline_ns) {
    return deadline_ns != UINT64_MAX && clock_ns(CLOCK_BOOTTIME) >= deadline_ns;
}

/* ---- Engines: a thread and a queue each ---------------------------------------------------------------------- */

struct work {
    enum accelerator_result (*run)(struct accelerator *, struct work *);
    const void *what; /* copies, or a program */
    accelerator_step step;
    uint32_t count;
    uint64_t deadline_ns;
    uint64_t ticks;
    enum accelerator_result result;
    enum { WAITING, RUNNING, DONE } state;
    struct work *next;
};

struct engine {
    struct accelerator *accelerator;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first;
    struct work *last;
    bool closing;
    bool runs;
};

/* Blocks of memory in the order of their addresses. */
struct block {
    accelerator_address at;
    uint64_t bytes;
    struct block *next;
};

struct accelerator {
    int node;
    uint8_t *memory;
    uint64_t memory_bytes;
    uint64_t powered_on_ns;
    pthread_mutex_t lock; /* of the blocks */
    struct block *blocks;
    struct engine dma;
    struct engine compute;
};

/* The accelerator's clock: ticks since it was switched on. */
static uint64_t now_ticks(const struct accelerator *accelerator) {
    return (clock_ns(CLOCK_MONOTONIC_RAW) - accelerator->powered_on_ns) / ACCELERATOR_TICK_NS;
}

static void *serve(void *argument) {
    struct engine *engine = argument;
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        while (!engine->first && !engine->closing) {
            pthread_cond_wait(&engine->changed, &engine->lock);
        }
        struct work *work = engine->first;
        if (!work) {
            break;
        }
        engine->first = work->next;
        engine->last = engine->first ? engine->last : NULL;
        work->state = RUNNING;
        pthread_mutex_unlock(&engine->lock);
        uint64_t began = now_ticks(engine->accelerator);
        work->result = work->run(engine->accelerator, work);
        work->ticks = now_ticks(engine->accelerator) - began;
        pthread_mutex_lock(&engine->lock);
        work->state = DONE;
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

static void unqueue(struct engine *engine, const struct work *work) {
    struct work **place = &engine->first;
    struct work *before = NULL;
    while (*place != work) {
        before = *place;
        place = &before->next;
    }
    *place = work->next;
    if (engine->last == work) {
        engine->last = before;
    }
}

/* Waits for what changes an engine, at most until a deadline. */
static void wait_for_change(struct engine *engine, uint64_t deadline_ns) {
    if (deadline_ns == UINT64_MAX) {
        pthread_cond_wait(&engine->changed, &engine->lock);
        return;
    }
    uint64_t now = clock_ns(CLOCK_BOOTTIME);
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    uint64_t until = clock_ns(CLOCK_MONOTONIC) + (left < 1000000000u ? left : 1000000000u);
    struct timespec moment = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    (void)pthread_cond_timedwait(&engine->changed, &engine->lock, &moment);
}

static enum accelerator_result do_work(struct engine *engine, struct work *work, uint64_t *ticks) {
    pthread_mutex_lock(&engine->lock);
    if (engine->last) {
        engine->last->next = work;
    } else {
        engine->first = work;
    }
    engine->last = work;
    pthread_cond_broadcast(&engine->changed);
    while (work->state != DONE) {
        if (work->state == WAITING && is_late(work->deadline_ns)) {
            unqueue(engine, work);
            work->result = ACCELERATOR_LATE;
            break;
        }
        wait_for_change(engine, work->state == WAITING ? work->deadline_ns : UINT64_MAX);
    }
    pthread_mutex_unlock(&engine->lock);
    *ticks += work->ticks;
    return work->result;
}

static bool start_engine(struct engine *engine, struct accelerator *accelerator) {
    pthread_condattr_t monotonic;
    sigset_t all, before;
    engine->accelerator = accelerator;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all); /* signals are the host program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    engine->runs = pthread_create(&engine->thread, NULL, serve, engine) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return engine->runs;
}

static void stop_engine(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    if (engine->runs) {
        pthread_join(engine->thread, NULL);
    }
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
}

/* ---- The whole ----------------------------------------------------------------------------------------------- */

static enum accelerator_result take_node(const char *path, int *node) {
    *node = -1;
    if (!path) {
        return ACCELERATOR_OK;
    }
    *node = open(path, O_RDWR | O_CLOEXEC);
    if (*node < 0) {
        return ACCELERATOR_NO_NODE;
    }
    if (flock(*node, LOCK_EX | LOCK_NB) != 0) {
        close(*node);
        *node = -1;
        return ACCELERATOR_BUSY;
    }
    return ACCELERATOR_OK;
}

enum accelerator_result accelerator_open(const struct accelerator_settings *settings, struct accelerator **opened) {
    struct accelerator *made = calloc(1, sizeof *made);
    if (!made) {
        return ACCELERATOR_NO_MEMORY;
    }
    enum accelerator_result result = take_node(settings->node, &made->node);
    if (result != ACCELERATOR_OK) {
        free(made);
        return result;
    }
    made->powered_on_ns = clock_ns(CLOCK_MONOTONIC_RAW);
    made->memory_bytes = settings->memory_bytes / ACCELERATOR_ALIGNMENT * ACCELERATOR_ALIGNMENT;
    pthread_mutex_init(&made->lock, NULL);
    void *memory = mmap(NULL, made->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    made->memory = memory == MAP_FAILED ? NULL : memory;
    bool has_dma = start_engine(&made->dma, made);
    bool has_compute = start_engine(&made->compute, made);
    if (!made->memory || !has_dma || !has_compute) {
        accelerator_close(made);
        return ACCELERATOR_NO_MEMORY;
    }
    struct timespec warm_up = {settings->warm_up_ms / 1000, (long)(settings->warm_up_ms % 1000) * 1000000};
    while (nanosleep(&warm_up, &warm_up) != 0 && errno == EINTR) {
    }
    *opened = made;
    return ACCELERATOR_OK;
}

void accelerator_close(struct accelerator *accelerator) {
    stop_engine(&accelerator->compute);
    stop_engine(&accelerator->dma);
    while (accelerator->blocks) {
        struct block *block = accelerator->blocks;
        accelerator->blocks = block->next;
        free(block);
    }
    if (accelerator->memory) {
        munmap(accelerator->memory, accelerator->memory_bytes);
    }
    if (accelerator->node >= 0) {
        close(accelerator->node); /* which gives the lock up */
    }
    pthread_mutex_destroy(&accelerator->lock);
    free(accelerator);
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* The first address is never given out: 0 stands for none. */
accelerator_address accelerator_allocate(struct accelerator *accelerator, uint64_t bytes) {
    if (bytes == 0 || bytes > accelerator->memory_bytes) {
        return 0;
    }
    uint64_t room = (bytes + ACCELERATOR_ALIGNMENT - 1) / ACCELERATOR_ALIGNMENT * ACCELERATOR_ALIGNMENT;
    struct block *made = malloc(sizeof *made);
    if (!made) {
        return 0;
    }
    pthread_mutex_lock(&accelerator->lock);
    accelerator_address at = ACCELERATOR_ALIGNMENT;
    struct block **place = &accelerator->blocks;
    while (*place && (*place)->at - at < room) { /* the gap before a block is too small */
        at = (*place)->at + (*place)->bytes;
        place = &(*place)->next;
    }
    if (!*place && accelerator->memory_bytes - at < room) {
        pthread_mutex_unlock(&accelerator->lock);
        free(made);
        return 0;
    }
    *made = (struct block){at, room, *place};
    *place = made;
    pthread_mutex_unlock(&accelerator->lock);
    memset(accelerator->memory + at, 0, room);
    return at;
}

void accelerator_free(struct accelerator *accelerator, accelerator_address at) {
    if (at == 0) {
        return;
    }
    pthread_mutex_lock(&accelerator->lock);
    struct block **place = &accelerator->blocks;
    while ((*place)->at != at) {
        place = &(*place)->next;
    }
    struct block *block = *place;
    *place = block->next;
    pthread_mutex_unlock(&accelerator->lock);
    free(block);
}

/* ---- Work ---------------------------------------------------------------------------------------------------- */

static enum accelerator_result run_copies(struct accelerator *accelerator, struct work *work) {
    const struct accelerator_copy *copies = work->what;
    for (uint32_t i = 0; i < work->count; i++) {
        if (is_late(work->deadline_ns)) {
            return ACCELERATOR_LATE;
        }
        uint8_t *there = accelerator->memory + copies[i].at;
        memcpy(copies[i].in ? there : copies[i].host, copies[i].in ? copies[i].host : there, copies[i].bytes);
    }
    return ACCELERATOR_OK;
}

static enum accelerator_result run_steps(struct accelerator *accelerator, struct work *work) {
    for (uint32_t i = 0; i < work->count; i++) {
        if (is_late(work->deadline_ns)) {
            return ACCELERATOR_LATE;
        }
        work->step(work->what, i, accelerator->memory);
    }
    return ACCELERATOR_OK;
}

static enum accelerator_result run_nothing(struct accelerator *accelerator, struct work *work) {
    struct engine *engine = &accelerator->compute;
    pthread_mutex_lock(&engine->lock);
    while (!engine->closing && !is_late(work->deadline_ns)) {
        wait_for_change(engine, work->deadline_ns);
    }
    pthread_mutex_unlock(&engine->lock);
    return ACCELERATOR_LATE;
}

enum accelerator_result accelerator_copy(struct accelerator *accelerator, const struct accelerator_copy *copies,
                                         uint32_t count, uint64_t deadline_ns, uint64_t *ticks) {
    struct work work = {.run = run_copies, .what = copies, .count = count, .deadline_ns = deadline_ns};
    return count == 0 ? ACCELERATOR_OK : do_work(&accelerator->dma, &work, ticks);
}

enum accelerator_result accelerator_compute(struct accelerator *accelerator, accelerator_step step,
                                            const void *program, uint32_t steps, uint64_t deadline_ns,
                                            uint64_t *ticks) {
    struct work work = {
        .run = run_steps, .what = program, .step = step, .count = steps, .deadline_ns = deadline_ns};
    return do_work(&accelerator->compute, &work, ticks);
}

enum accelerator_result accelerator_hang(struct accelerator *accelerator, uint64_t deadline_ns) {
    struct work work = {.run = run_nothing, .deadline_ns = deadline_ns};
    uint64_t ticks = 0;
    return do_work(&accelerator->compute, &work, &ticks);
}
