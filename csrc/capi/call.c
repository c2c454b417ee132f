#include "call.h"

#include <stddef.h>

#include "../../src/nnburst/capi/include/android/NeuralNetworks.h"
#include "native_execution.h"
#include "handles.h"
#include "interpreter.h"
#include "log.h"

/* The greatest length of an array of handles that a program can pass. */
#define MOST_HANDLES 65536

/* RT:L1: null arguments are refused before all other checks. */
static bool refused_null(const struct nnb_function_description *description, const int64_t *words) {
    for (uint32_t i = 0; i < description->argument_count; i++) {
        const struct nnb_argument *argument = &description->arguments[i];
        if (words[i] == 0 && argument->passing != NNB_PASS_VALUE &&
            (argument->required || (argument->count >= 0 && words[argument->count] != 0))) {
            nnb_log("%s: argument %u is null", description->name, i + 1);
            return true;
        }
    }
    return false;
}

static int check_array(const struct nnb_function_description *description, uint32_t index,
                       const int64_t *words) {
    const struct nnb_argument *argument = &description->arguments[index];
    const uint64_t *handles = nnb_address(words[index]);
    int64_t count = words[argument->count];
    if (count > MOST_HANDLES) {
        nnb_log("%s: argument %u has %lld entries, the limit is %d", description->name, index + 1,
                (long long)count, MOST_HANDLES);
        return ANEURALNETWORKS_BAD_DATA;
    }
    for (int64_t i = 0; i < count; i++) {
        if (handles[i] == 0) {
            nnb_log("%s: entry %lld of argument %u is null", description->name, (long long)i, index + 1);
            return ANEURALNETWORKS_UNEXPECTED_NULL;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (nnb_handle_slot(handles[i], argument->kind) == NULL) {
            nnb_log("%s: entry %lld of argument %u is not a living object of its kind", description->name,
                    (long long)i, index + 1);
            return ANEURALNETWORKS_BAD_DATA;
        }
    }
    return ANEURALNETWORKS_NO_ERROR;
}

/* Checks every handle in the table of valid ones; a refused value is never used as an address. */
static int check_handles(const struct nnb_function_description *description, const int64_t *words) {
    int code = ANEURALNETWORKS_NO_ERROR;
    for (uint32_t i = 0; i < description->argument_count && code == ANEURALNETWORKS_NO_ERROR; i++) {
        const struct nnb_argument *argument = &description->arguments[i];
        if (argument->passing == NNB_PASS_HANDLES) {
            code = check_array(description, i, words);
        } else if (argument->passing == NNB_PASS_HANDLE &&
                   nnb_handle_slot((uint64_t)words[i], argument->kind) == NULL) {
            nnb_log("%s: argument %u is not a living object of its kind", description->name, i + 1);
            code = ANEURALNETWORKS_BAD_DATA;
        }
    }
    return code;
}

/* RT:L1: the place for a new object's handle is null unless the call succeeds. */
static int new_object_at(const struct nnb_function_description *description) {
    for (uint32_t i = 0; i < description->argument_count; i++) {
        if (description->arguments[i].passing == NNB_PASS_NEW_HANDLE) {
            return (int)i;
        }
    }
    return -1;
}

static int call_that_makes(enum nnb_function function, int64_t *words, uint32_t index) {
    enum nnb_handle_kind kind = nnb_descriptions[function].arguments[index].kind;
    uint64_t *room = nnb_address(words[index]);
    uint64_t handle = nnb_handle_new(kind);
    if (handle == 0) {
        return ANEURALNETWORKS_OUT_OF_MEMORY;
    }
    words[index] = (int64_t)handle;
    int code = (int)nnb_services.call(function, words);
    if (code == ANEURALNETWORKS_NO_ERROR) {
        *room = handle;
    } else {
        nnb_handle_end(handle, kind);
    }
    return code;
}

/* The locked slot of an object that is to be freed; RT:E9: an execution that computes is refused. */
static struct nnb_slot *locked_to_free(uint64_t handle, enum nnb_handle_kind kind) {
    return kind == NNB_EXECUTION ? nnb_handle_try_lock(handle, kind) : nnb_handle_lock(handle, kind);
}

static int call_that_frees(enum nnb_function function, int64_t *words) {
    uint64_t handle = (uint64_t)words[0];
    enum nnb_handle_kind kind = nnb_descriptions[function].arguments[0].kind;
    struct nnb_slot *slot = locked_to_free(handle, kind);
    if (slot == NULL) {
        nnb_log("%s: it is computing, and stays", nnb_descriptions[function].name);
        return ANEURALNETWORKS_BAD_STATE; /* RT:E9 */
    }
    const struct nnb_fast_run *offer = slot->fast.offer;
    nnb_slot_withdraw(slot); /* Python enters everything but an execution's request again when it is needed */
    int code = (int)nnb_services.call(function, words);
    if (code == ANEURALNETWORKS_OP_FAILED) { /* a signal handler of Python has raised: call again */
        code = (int)nnb_services.call(function, words);
    }
    if (code == ANEURALNETWORKS_NO_ERROR) {
        nnb_handle_end_locked(slot, handle);
    } else {
        slot->fast.offer = offer;
        nnb_handle_unlock(slot);
    }
    return code;
}

/* Has the Python side adopt a native execution, and events, before a call on them; C does not compute them
 * meanwhile. */
static int ready_for_python(const struct nnb_function_description *description, const int64_t *words) {
    for (uint32_t i = 0; i < description->argument_count; i++) {
        const struct nnb_argument *argument = &description->arguments[i];
        if (argument->kind == NNB_EVENT && argument->passing == NNB_PASS_HANDLE) {
            nnb_event_adopt((uint64_t)words[i]);
        } else if (argument->kind == NNB_EVENT && argument->passing == NNB_PASS_HANDLES) {
            const uint64_t *events = nnb_address(words[i]);
            for (int64_t at = 0; at < words[argument->count]; at++) {
                nnb_event_adopt(events[at]);
            }
        }
    }
    const struct nnb_argument *first = &description->arguments[0];
    return first->passing == NNB_PASS_HANDLE && first->kind == NNB_EXECUTION
               ? nnb_native_adopted((uint64_t)words[0], description->name)
               : ANEURALNETWORKS_NO_ERROR;
}

static int call_python(enum nnb_function function, int64_t *words, int new_object) {
    const struct nnb_function_description *description = &nnb_descriptions[function];
    int code = ready_for_python(description, words);
    if (code != ANEURALNETWORKS_NO_ERROR) {
        return code;
    }
    if (description->frees) {
        return call_that_frees(function, words);
    }
    return new_object >= 0 ? call_that_makes(function, words, (uint32_t)new_object)
                           : (int)nnb_services.call(function, words);
}

int nnb_enter(enum nnb_function function, int64_t *words) {
    const struct nnb_function_description *description = &nnb_descriptions[function];
    int new_object = new_object_at(description);
    if (new_object >= 0 && words[new_object] != 0) {
        *(uint64_t *)nnb_address(words[new_object]) = 0;
    }
    if (function == NNB_EVENT_GET_SYNC_FENCE_FD && words[1] != 0) {
        *(int *)nnb_address(words[1]) = -1;
    }
    if (refused_null(description, words)) {
        return ANEURALNETWORKS_UNEXPECTED_NULL;
    }
    if (description->frees && words[0] == 0) {
        return ANEURALNETWORKS_NO_ERROR;
    }
    int code = check_handles(description, words);
    if (code != ANEURALNETWORKS_NO_ERROR) {
        return code;
    }
    if (function == NNB_MEMORY_CREATE_FROM_AHARDWARE_BUFFER) {
        return ANEURALNETWORKS_BAD_DATA; /* without starting anything */
    }
    if (!nnb_interpreter_enter(description->frees)) {
        return ANEURALNETWORKS_UNAVAILABLE_DEVICE;
    }
    code = call_python(function, words, new_object);
    nnb_interpreter_leave();
    return code;
}

static void copy(const struct nnb_copy *copies, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    }
}

/* Runs the request that the Python side has entered for an execution; the slot is locked. Returns 0 if the
 * run ended like the last one, 1 if the Python side must carry out the call, 2 if it must finish the run,
 * whose code is in `*status`. */
static int run_offer(const struct nnb_fast *fast, uint64_t burst, int *status) {
    const struct nnb_fast_run *offer = fast->offer;
    if (offer == NULL || offer->burst != burst ||
        (burst != 0 && nnb_handle_slot(burst, NNB_BURST) == NULL)) {
        return 1;
    }
    copy(offer->copies_in, offer->copies_in_count);
    *status = offer->run(offer->bound);
    if (*status != 0) {
        return 2;
    }
    copy(offer->copies_out, offer->copies_out_count);
    return 0;
}

static int compute(enum nnb_function function, int64_t *words) {
    struct nnb_slot *slot = nnb_handle_slot((uint64_t)words[0], NNB_EXECUTION);
    if (slot == NULL) {
        return nnb_enter(function, words);
    }
    uint64_t burst = function == NNB_EXECUTION_BURST_COMPUTE ? (uint64_t)words[1] : 0;
    /* SYNC POINT R: the offer is complete. */
    if (!nnb_try_lock(&slot->fast.busy)) {
        if (nnb_interpreter_gone()) { /* which may be why it is locked */
            return nnb_enter(function, words);
        }
        nnb_log("%s: it is computing already", nnb_descriptions[function].name);
        return ANEURALNETWORKS_BAD_STATE; /* RT:E4 */
    }
    int status = 0;
    nnb_slot_set_computing(slot, true);
    /* Looked up again, since the handle may have ended and its slot may have a new one. */
    int outcome = nnb_handle_slot((uint64_t)words[0], NNB_EXECUTION) == slot
                      ? run_offer(&slot->fast, burst, &status)
                      : 1;
    int code = ANEURALNETWORKS_NO_ERROR;
    if (outcome == 2 && status == NNB_RUN_BUSY) {
        code = ANEURALNETWORKS_BAD_STATE; /* RT:B2 */
    } else if (outcome == 2) {
        int64_t finished = nnb_services.finish((uint64_t)words[0], status);
        if ((finished & NNB_KEEP_OFFER) == 0) {
            slot->fast.offer = NULL; /* until the next success, after which Python enters it again */
        }
        code = (int)(finished & ~(int64_t)NNB_KEEP_OFFER);
    }
    nnb_slot_set_computing(slot, false);
    /* SYNC POINT R: the run's writes are visible to the next thread that takes the lock. */
    nnb_unlock(&slot->fast.busy);
    return outcome == 1 ? nnb_enter(function, words) : code;
}

int nnb_enter_fast(enum nnb_function function, int64_t *words) {
    int code = ANEURALNETWORKS_NO_ERROR;
    if (nnb_interpreter_gone()) {
        return nnb_enter(function, words);
    }
    if (nnb_native_call(function, words, &code)) {
        return code;
    }
    return function == NNB_EXECUTION_COMPUTE || function == NNB_EXECUTION_BURST_COMPUTE
               ? compute(function, words)
               : nnb_enter(function, words);
}
