#include "native_execution.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/nnburst/capi/include/android/NeuralNetworks.h"
#include "../clock.h"
#include "handles.h"
#include "interpreter.h"
#include "log.h"

/* Locks and returns the slot of a native execution. NULL for other executions, and, with `*computes` set,
 * while C computes this one. */
static struct nnb_slot *lock_native(uint64_t execution, bool *computes) {
    struct nnb_slot *slot;
    *computes = false;
    while ((slot = nnb_handle_slot(execution, NNB_EXECUTION)) != NULL) {
        *computes = nnb_slot_computes(slot);
        if (*computes || nnb_slot_native(slot) == NULL) {
            return NULL;
        }
        if (nnb_handle_try_lock(execution, NNB_EXECUTION) == slot) {
            if (nnb_slot_native(slot) != NULL) {
                return slot;
            }
            nnb_handle_unlock(slot); /* the Python side has adopted it meanwhile */
            return NULL;
        }
        (void)sched_yield();
    }
    return NULL;
}

/* Takes a compilation's argument sizes, which stay valid until its last native execution is dropped; NULL
 * without any. */
static struct nnb_argument_sizes *take_sizes(uint64_t compilation) {
    struct nnb_slot *slot = nnb_handle_try_lock(compilation, NNB_COMPILATION);
    if (slot == NULL) {
        return NULL;
    }
    struct nnb_argument_sizes *sizes = slot->fast.sizes;
    if (sizes != NULL) {
        (void)nnb_count_u32(&sizes->executions, 1);
    }
    nnb_handle_unlock(slot);
    return sizes;
}

static bool create(uint64_t compilation, uint64_t *room) {
    struct nnb_argument_sizes *sizes = room == NULL ? NULL : take_sizes(compilation);
    if (sizes == NULL) {
        return false;
    }
    size_t count = (size_t)sizes->input_count + sizes->output_count;
    struct nnb_native_execution *native = calloc(1, sizeof *native + count * sizeof *native->arguments);
    uint64_t handle = native == NULL ? 0 : nnb_handle_new(NNB_EXECUTION);
    struct nnb_slot *slot = nnb_handle_slot(handle, NNB_EXECUTION);
    if (slot == NULL) {
        (void)nnb_count_u32(&sizes->executions, UINT32_MAX);
        free(native);
        return false; /* the Python side would also find no room */
    }
    native->sizes = sizes;
    nnb_slot_set_native(slot, native);
    *room = handle;
    return true;
}

static bool is_set(const struct nnb_place *argument) {
    return argument->address != NULL || argument->memory != 0;
}

/* Whether the type that a program gives for an argument equals the type that the model declares. */
static bool is_declared(const ANeuralNetworksOperandType *given, const struct nnb_argument_type *declared) {
    return given->type == declared->type && given->dimensionCount == declared->rank &&
           memcmp(&given->scale, &declared->scale, sizeof given->scale) == 0 &&
           given->zeroPoint == declared->zero_point && (declared->rank == 0) == (given->dimensions == NULL) &&
           (declared->rank == 0 ||
            memcmp(given->dimensions, declared->dimensions, declared->rank * sizeof *given->dimensions) == 0);
}

/* The argument that a call sets, if it is not set yet and has the length and the type that the model
 * declares; NULL if the Python side must check it. */
static struct nnb_place *unset_argument(struct nnb_native_execution *native, bool is_output, int64_t index,
                                        const ANeuralNetworksOperandType *type, uint64_t length) {
    const struct nnb_argument_sizes *sizes = native->sizes;
    uint32_t count = is_output ? sizes->output_count : sizes->input_count;
    if (native->completed || index < 0 || index >= count) {
        return NULL;
    }
    size_t at = (size_t)index + (is_output ? sizes->input_count : 0);
    if (length == 0 || sizes->bytes[at] != length || is_set(&native->arguments[at]) ||
        (type != NULL && !is_declared(type, &sizes->types[at]))) {
        return NULL;
    }
    return &native->arguments[at];
}

/* Notes an argument at an address; false if the Python side must do it. */
static bool note_address(struct nnb_native_execution *native, bool is_output, const int64_t *words) {
    struct nnb_place *argument =
        unset_argument(native, is_output, words[1], nnb_address(words[2]), (uint64_t)words[4]);
    if (argument == NULL || words[3] == 0) {
        return false;
    }
    argument->address = nnb_address(words[3]);
    native->set++;
    return true;
}

/* Bytes of a memory that arguments of native executions may lie in; 0 if the Python side must check each argument. */
static uint64_t size_of_memory(uint64_t memory) {
    struct nnb_slot *slot = nnb_handle_slot(memory, NNB_MEMORY);
    /* SYNC POINT Y: see offer_memory. If the memory is freed meanwhile, the size may be another memory's, but
     * no cached request is bound to a handle that has ended. TRUST: memory of this process. */
    return slot == NULL ? 0 : nnb_load_acquire_u64(&slot->fast.size);
}

/* Notes an argument in a memory; false if the Python side must do it. */
static bool note_range(struct nnb_native_execution *native, bool is_output, const int64_t *words) {
    uint64_t memory = (uint64_t)words[3];
    uint64_t offset = (uint64_t)words[4];
    uint64_t length = (uint64_t)words[5];
    uint64_t size = size_of_memory(memory);
    if (offset > size || length > size - offset) {
        return false;
    }
    struct nnb_place *argument = unset_argument(native, is_output, words[1], nnb_address(words[2]), length);
    if (argument == NULL) {
        return false;
    }
    argument->memory = memory;
    argument->offset = offset;
    native->set++;
    return true;
}

static void copy_in(const struct nnb_native_execution *native, const struct nnb_cached_request *cached) {
    const struct nnb_argument_sizes *sizes = native->sizes;
    for (uint32_t i = 0; i < sizes->input_count; i++) {
        if (native->arguments[i].memory == 0) {
            memcpy(cached->places[i].address, native->arguments[i].address, sizes->bytes[i]);
        }
    }
}

static void copy_out(const struct nnb_native_execution *native, const struct nnb_cached_request *cached) {
    const struct nnb_argument_sizes *sizes = native->sizes;
    for (uint32_t i = sizes->input_count; i < sizes->input_count + sizes->output_count; i++) {
        if (native->arguments[i].memory == 0) {
            memcpy(native->arguments[i].address, cached->places[i].address, sizes->bytes[i]);
        }
    }
}

/* Whether a cached request fits a native execution whose arguments are all set. */
static bool suits(const struct nnb_cached_request *cached, const struct nnb_native_execution *native) {
    const struct nnb_argument_sizes *sizes = native->sizes;
    bool same = cached->sizes == sizes;
    for (uint32_t i = 0; same && i < sizes->input_count + sizes->output_count; i++) {
        same = cached->places[i].memory == native->arguments[i].memory &&
               cached->places[i].offset == native->arguments[i].offset;
    }
    return same;
}

/* Finds the cached request of a burst that fits a native execution, and marks it as busy. NULL if no request
 * fits, or, with `*is_busy` set, if another execution runs it. */
static struct nnb_cached_request *take(uint64_t burst, const struct nnb_native_execution *native, bool *is_busy) {
    *is_busy = false;
    struct nnb_slot *slot = nnb_handle_try_lock(burst, NNB_BURST);
    if (slot == NULL) {
        return NULL; /* freed, or locked by another thread: the Python side handles that */
    }
    struct nnb_cached_request *cached = NULL;
    for (uint32_t i = 0; cached == NULL && i < slot->fast.cached_count; i++) {
        cached = suits(slot->fast.cached[i], native) ? slot->fast.cached[i] : NULL;
    }
    /* SYNC POINT V: the execution before has finished with the pool. */
    if (cached != NULL && !nnb_try_lock(&cached->busy)) {
        *is_busy = true;
        cached = NULL;
    }
    nnb_handle_unlock(slot);
    return cached;
}

/* After this many slow runs in a row, startCompute no longer waits for a run. */
#define MOST_SLOW 8u

static bool starts(enum nnb_mode mode) { return mode == NNB_ASYNC || mode == NNB_ASYNC_WITH_DEPS; }

/* Runs a request that was taken for a native execution whose slot is locked, and releases it. False, with
 * nothing done, if the burst computes for another execution. */
static bool run(struct nnb_slot *slot, uint64_t execution, struct nnb_cached_request *cached, enum nnb_mode mode,
                int *result) {
    struct nnb_native_execution *native = nnb_slot_native(slot);
    uint64_t began_ns = starts(mode) ? nnb_now_ns() : 0;
    native->mode = mode;
    int code = ANEURALNETWORKS_NO_ERROR;
    bool is_in_place = false;
    copy_in(native, cached);
    nnb_slot_set_computing(slot, true);
    int status = cached->run(cached->bound);
    if (status == NNB_RUN_BUSY) {
        code = ANEURALNETWORKS_BAD_STATE; /* and its state does not change */
    } else if (status != 0) {
        int64_t finished = nnb_services.finish_cached(execution, native, cached, status);
        code = (int)(finished & ~(int64_t)NNB_IN_PLACE);
        is_in_place = (finished & NNB_IN_PLACE) != 0;
    }
    if (code == ANEURALNETWORKS_NO_ERROR && !is_in_place) {
        copy_out(native, cached);
    }
    native->completed = code == ANEURALNETWORKS_NO_ERROR;
    if (native->adopted) {
        nnb_slot_drop_native(slot);
    }
    nnb_slot_set_computing(slot, false);
    if (starts(mode)) {
        cached->slow = nnb_now_ns() - began_ns > cached->quick_ns ? cached->slow + 1 : 0;
    }
    /* SYNC POINT V: the next execution may use the pool. */
    nnb_unlock(&cached->busy);
    *result = code;
    return status != NNB_RUN_BUSY;
}

/* As `take`, but also NULL if the execution has already computed, or lacks an argument. */
static struct nnb_cached_request *take_ready(uint64_t burst, const struct nnb_native_execution *native, bool *is_busy) {
    const struct nnb_argument_sizes *sizes = native->sizes;
    *is_busy = false;
    return native->completed || native->set != sizes->input_count + sizes->output_count
               ? NULL
               : take(burst, native, is_busy);
}

/* Computes a locked native execution over a burst. False if nothing was done: the Python side must do it, or,
 * with `*is_busy` set, the burst computes for another execution. */
static bool compute_over(uint64_t burst, struct nnb_slot *slot, const int64_t *words, enum nnb_mode mode, int *code,
                         bool *is_busy) {
    struct nnb_cached_request *cached = take_ready(burst, nnb_slot_native(slot), is_busy);
    if (cached != NULL) {
        *is_busy = !run(slot, (uint64_t)words[0], cached, mode, code);
    }
    return cached != NULL && !*is_busy;
}

static bool burst_compute(struct nnb_slot *slot, const int64_t *words, int *code) {
    bool is_busy;
    bool done = compute_over((uint64_t)words[1], slot, words, NNB_BURST_MODE, code, &is_busy);
    if (is_busy) {
        *code = ANEURALNETWORKS_BAD_STATE; /* RT:B2 */
    }
    return done || is_busy;
}

/* The burst that the Python side has opened for this thread's computations without a given burst; 0 without
 * one. */
static uint64_t burst_of_thread(const struct nnb_argument_sizes *sizes) {
    uint64_t me = (uint64_t)pthread_self(); /* Python calls it the thread's identity, too */
    for (uint32_t i = 0; i < sizes->thread_count; i++) {
        struct nnb_thread_burst *row = &sizes->threads[i];
        /* SYNC POINT M: see nnb_thread_burst_set. If the row is cleared meanwhile, the burst may become
         * another thread's: each thread computes correctly or finds it busy. TRUST: memory of this process.
         * */
        if (nnb_load_acquire_u64(&row->thread) == me) {
            if (nnb_load_relaxed_u32(&row->used) == 0) { /* TRUST: memory of this process */
                nnb_store_release_u32(&row->used, 1); /* SYNC POINT M: see nnb_thread_burst_was_used */
            }
            return nnb_load_acquire_u64(&row->burst); /* SYNC POINT M: see above. TRUST: the same */
        }
    }
    return 0;
}

static bool compute(struct nnb_slot *slot, const int64_t *words, int *code) {
    uint64_t burst = burst_of_thread(nnb_slot_native(slot)->sizes);
    bool is_busy; /* locked by a call that this one interrupts: Python carries this one out */
    return burst != 0 && compute_over(burst, slot, words, NNB_SYNC, code, &is_busy);
}

/* Computes a quick native execution on the thread that starts it, and makes an event that has ended. False if
 * nothing was done. */
static bool start(struct nnb_slot *slot, const int64_t *words, uint64_t *event, enum nnb_mode mode) {
    uint64_t burst = burst_of_thread(nnb_slot_native(slot)->sizes);
    bool is_busy;
    struct nnb_cached_request *cached =
        burst == 0 || event == NULL ? NULL : take_ready(burst, nnb_slot_native(slot), &is_busy);
    if (cached == NULL) {
        return false;
    }
    bool is_quick = cached->quick_ns != 0 && cached->slow < MOST_SLOW;
    uint64_t made = is_quick ? nnb_handle_new(NNB_EVENT) : 0;
    if (made == 0) {
        /* SYNC POINT V: as it was. */
        nnb_unlock(&cached->busy);
        return false;
    }
    int code;
    if (!run(slot, (uint64_t)words[0], cached, mode, &code)) {
        nnb_handle_end(made, NNB_EVENT);
        return false;
    }
    /* SYNC POINT AB: the results are visible to a thread that finds the event ended. */
    nnb_store_release_u32(&nnb_handle_slot(made, NNB_EVENT)->fast.ended, (uint32_t)code + 1);
    *event = made;
    return true;
}

/* The code of an event's computation, plus 1; 0 if the Python side has the event, or the handle has ended. */
static uint32_t ended(uint64_t event) {
    struct nnb_slot *slot = nnb_handle_slot(event, NNB_EVENT);
    /* SYNC POINT AB: see start. TRUST: memory of this process. */
    return slot == NULL ? 0 : nnb_load_acquire_u32(&slot->fast.ended);
}

/* Whether C knows that all events of a list have ended. */
static bool all_ended(const uint64_t *events, int64_t count) {
    bool found = true;
    for (int64_t i = 0; found && i < count; i++) {
        found = ended(events[i]) != 0;
    }
    return found;
}

/* The same with dependencies. If all arguments lie in memories, the Python side must give the event a fence.
 * */
static bool start_behind(struct nnb_slot *slot, const int64_t *words) {
    const struct nnb_native_execution *native = nnb_slot_native(slot);
    bool has_address = false;
    for (uint32_t i = 0; i < native->sizes->input_count + native->sizes->output_count; i++) {
        has_address = has_address || native->arguments[i].memory == 0;
    }
    return has_address && words[3] == 0 && (words[2] == 0 || words[1] != 0) &&
           all_ended(nnb_address(words[1]), words[2]) &&
           start(slot, words, nnb_address(words[4]), NNB_ASYNC_WITH_DEPS);
}

/* Ends the handle of an event that has ended; false if the Python side has it. */
static bool free_event(uint64_t event) {
    struct nnb_slot *slot = nnb_handle_try_lock(event, NNB_EVENT);
    if (slot == NULL) {
        return false;
    }
    if (ended(event) == 0) {
        nnb_handle_unlock(slot);
        return false;
    }
    /* SYNC POINT AB: publishes nothing else; the slot's next event has not ended. */
    nnb_store_release_u32(&slot->fast.ended, 0);
    nnb_handle_end_locked(slot, event);
    return true;
}

/* The declared type of a computed output, since C computes only outputs with known extents; NULL if the
 * Python side must answer. */
static const struct nnb_argument_type *computed_output(const struct nnb_native_execution *native, int64_t index) {
    const struct nnb_argument_sizes *sizes = native->sizes;
    return native->completed && index >= 0 && index < sizes->output_count
               ? &sizes->types[sizes->input_count + (size_t)index]
               : NULL;
}

static bool output_rank(const struct nnb_native_execution *native, const int64_t *words) {
    const struct nnb_argument_type *output = computed_output(native, words[1]);
    uint32_t *rank = nnb_address(words[2]);
    if (output == NULL || rank == NULL) {
        return false;
    }
    *rank = output->rank;
    return true;
}

static bool output_dimensions(const struct nnb_native_execution *native, const int64_t *words) {
    const struct nnb_argument_type *output = computed_output(native, words[1]);
    uint32_t *dimensions = nnb_address(words[2]);
    if (output == NULL || dimensions == NULL || output->rank == 0) {
        return false;
    }
    memcpy(dimensions, output->dimensions, output->rank * sizeof *dimensions);
    return true;
}

/* Carries out a call on a native execution, whose slot is locked. */
static bool call_locked(enum nnb_function function, struct nnb_slot *slot, const int64_t *words, int *code) {
    switch (function) {
    case NNB_EXECUTION_SET_INPUT:
        return note_address(nnb_slot_native(slot), false, words);
    case NNB_EXECUTION_SET_OUTPUT:
        return note_address(nnb_slot_native(slot), true, words);
    case NNB_EXECUTION_SET_INPUT_FROM_MEMORY:
        return note_range(nnb_slot_native(slot), false, words);
    case NNB_EXECUTION_SET_OUTPUT_FROM_MEMORY:
        return note_range(nnb_slot_native(slot), true, words);
    case NNB_EXECUTION_SET_REUSABLE: /* it stays not reusable, unless the call sets that */
        return words[1] == 0 && !nnb_slot_native(slot)->completed;
    case NNB_EXECUTION_COMPUTE:
        return compute(slot, words, code);
    case NNB_EXECUTION_BURST_COMPUTE:
        return burst_compute(slot, words, code);
    case NNB_EXECUTION_START_COMPUTE:
        return start(slot, words, nnb_address(words[1]), NNB_ASYNC);
    case NNB_EXECUTION_START_COMPUTE_WITH_DEPENDENCIES:
        return start_behind(slot, words);
    case NNB_EXECUTION_GET_OUTPUT_OPERAND_RANK:
        return output_rank(nnb_slot_native(slot), words);
    case NNB_EXECUTION_GET_OUTPUT_OPERAND_DIMENSIONS:
        return output_dimensions(nnb_slot_native(slot), words);
    default:
        return false;
    }
}

bool nnb_native_call(enum nnb_function function, const int64_t *words, int *code) {
    *code = ANEURALNETWORKS_NO_ERROR;
    if (function == NNB_EXECUTION_CREATE) {
        return create((uint64_t)words[0], nnb_address(words[1]));
    }
    if (function == NNB_EVENT_FREE) {
        return free_event((uint64_t)words[0]);
    }
    if (function == NNB_EVENT_WAIT) {
        uint32_t found = ended((uint64_t)words[0]);
        *code = found == 0 ? 0 : (int)found - 1;
        return found != 0;
    }
    bool computes;
    struct nnb_slot *slot = lock_native((uint64_t)words[0], &computes);
    if (slot == NULL) {
        return false; /* a computing execution is refused after the arguments are checked */
    }
    if (function == NNB_EXECUTION_FREE) {
        nnb_slot_drop_native(slot);
        nnb_handle_end_locked(slot, (uint64_t)words[0]);
        return true;
    }
    bool done = call_locked(function, slot, words, code);
    nnb_handle_unlock(slot);
    return done;
}

int nnb_native_adopted(uint64_t execution, const char *name) {
    bool computes;
    struct nnb_slot *slot = lock_native(execution, &computes);
    if (slot == NULL) {
        if (computes) {
            nnb_log("%s: it is computing", name);
        }
        return computes ? ANEURALNETWORKS_BAD_STATE : ANEURALNETWORKS_NO_ERROR; /* RT:E4 */
    }
    struct nnb_native_execution *native = nnb_slot_native(slot);
    int code = (int)nnb_services.adopt(execution, native);
    if (native->adopted) {
        nnb_slot_drop_native(slot);
    }
    nnb_handle_unlock(slot);
    return code;
}

void nnb_event_adopt(uint64_t event) {
    struct nnb_slot *slot = ended(event) == 0 ? NULL : nnb_handle_lock(event, NNB_EVENT);
    if (slot == NULL) {
        return;
    }
    uint32_t found = ended(event);
    if (found != 0 && nnb_services.adopt_event(event, (int32_t)found - 1) == ANEURALNETWORKS_NO_ERROR) {
        /* SYNC POINT AB: the Python side has the event. */
        nnb_store_release_u32(&slot->fast.ended, 0);
    }
    nnb_handle_unlock(slot);
}
