#include "draft.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/nnburst/capi/include/android/NeuralNetworks.h"
#include "handles.h"
#include "interpreter.h"
#include "log.h"

/* The slot of an execution that is a draft, locked; NULL for any other, and if C computes it: then `*computes`. */
static struct nnb_slot *lock_draft(uint64_t execution, bool *computes) {
    struct nnb_slot *slot;
    *computes = false;
    while ((slot = nnb_handle_slot(execution, NNB_EXECUTION)) != NULL) {
        *computes = nnb_slot_computes(slot);
        if (*computes || nnb_slot_draft(slot) == NULL) {
            return NULL;
        }
        if (nnb_handle_try_lock(execution, NNB_EXECUTION) == slot) {
            if (nnb_slot_draft(slot) != NULL) {
                return slot;
            }
            nnb_handle_unlock(slot); /* the Python side has got it meanwhile */
            return NULL;
        }
        (void)sched_yield();
    }
    return NULL;
}

/* A compilation's template, which stays until its draft is dropped; NULL if it has none. */
static struct nnb_template *take_template(uint64_t compilation) {
    struct nnb_slot *slot = nnb_handle_try_lock(compilation, NNB_COMPILATION);
    if (slot == NULL) {
        return NULL;
    }
    struct nnb_template *template = slot->fast.template;
    if (template != NULL) {
        (void)nnb_count_u32(&template->drafts, 1);
    }
    nnb_handle_unlock(slot);
    return template;
}

static bool create(uint64_t compilation, uint64_t *room) {
    struct nnb_template *template = room == NULL ? NULL : take_template(compilation);
    if (template == NULL) {
        return false;
    }
    size_t count = (size_t)template->input_count + template->output_count;
    struct nnb_draft *draft = calloc(1, sizeof *draft + count * sizeof *draft->arguments);
    uint64_t handle = draft == NULL ? 0 : nnb_handle_new(NNB_EXECUTION);
    struct nnb_slot *slot = nnb_handle_slot(handle, NNB_EXECUTION);
    if (slot == NULL) {
        (void)nnb_count_u32(&template->drafts, UINT32_MAX);
        free(draft);
        return false; /* the Python side finds no room either */
    }
    draft->template = template;
    nnb_slot_set_draft(slot, draft);
    *room = handle;
    return true;
}

static bool is_set(const struct nnb_place *argument) {
    return argument->address != NULL || argument->memory != 0;
}

/* The argument that a call sets, if it is as long as the model declares and has not been set; NULL for all that the
 * Python side must look at. */
static struct nnb_place *unset_argument(struct nnb_draft *draft, bool is_output, int64_t index, bool has_type,
                                        uint64_t length) {
    const struct nnb_template *template = draft->template;
    uint32_t count = is_output ? template->output_count : template->input_count;
    if (draft->completed || has_type || index < 0 || index >= count) {
        return NULL;
    }
    size_t at = (size_t)index + (is_output ? template->input_count : 0);
    if (length == 0 || template->bytes[at] != length || is_set(&draft->arguments[at])) {
        return NULL;
    }
    return &draft->arguments[at];
}

/* Notes an argument at an address; false if the Python side must do it. */
static bool note_address(struct nnb_draft *draft, bool is_output, const int64_t *words) {
    struct nnb_place *argument =
        unset_argument(draft, is_output, words[1], words[2] != 0, (uint64_t)words[4]);
    if (argument == NULL || words[3] == 0) {
        return false;
    }
    argument->address = (void *)(uintptr_t)words[3];
    draft->set++;
    return true;
}

/* Bytes of a memory that drafts may lie in; 0 for any other value, and if the Python side must look at it. */
static uint64_t size_of_memory(uint64_t memory) {
    struct nnb_slot *slot = nnb_handle_slot(memory, NNB_MEMORY);
    /* SYNC POINT Y: see offer_memory. Of a memory that is freed meanwhile it may be another's: no loan is bound to a
     * handle that has ended. TRUST: memory of this process. */
    return slot == NULL ? 0 : nnb_load_acquire_u64(&slot->fast.size);
}

/* Notes an argument in a memory; false if the Python side must do it. */
static bool note_range(struct nnb_draft *draft, bool is_output, const int64_t *words) {
    uint64_t memory = (uint64_t)words[3];
    uint64_t offset = (uint64_t)words[4];
    uint64_t length = (uint64_t)words[5];
    uint64_t size = size_of_memory(memory);
    if (offset > size || length > size - offset) {
        return false;
    }
    struct nnb_place *argument = unset_argument(draft, is_output, words[1], words[2] != 0, length);
    if (argument == NULL) {
        return false;
    }
    argument->memory = memory;
    argument->offset = offset;
    draft->set++;
    return true;
}

static void copy_in(const struct nnb_draft *draft, const struct nnb_loan *loan) {
    const struct nnb_template *template = draft->template;
    for (uint32_t i = 0; i < template->input_count; i++) {
        if (draft->arguments[i].memory == 0) {
            memcpy(loan->places[i].address, draft->arguments[i].address, template->bytes[i]);
        }
    }
}

static void copy_out(const struct nnb_draft *draft, const struct nnb_loan *loan) {
    const struct nnb_template *template = draft->template;
    for (uint32_t i = template->input_count; i < template->input_count + template->output_count; i++) {
        if (draft->arguments[i].memory == 0) {
            memcpy(draft->arguments[i].address, loan->places[i].address, template->bytes[i]);
        }
    }
}

/* Whether a loan is for a draft whose arguments are all set. */
static bool suits(const struct nnb_loan *loan, const struct nnb_draft *draft) {
    const struct nnb_template *template = draft->template;
    bool same = loan->template == template;
    for (uint32_t i = 0; same && i < template->input_count + template->output_count; i++) {
        same = loan->places[i].memory == draft->arguments[i].memory &&
               loan->places[i].offset == draft->arguments[i].offset;
    }
    return same;
}

/* What a burst lends to a draft, borrowed; NULL if that is nothing, or is lent: then `*is_lent`. */
static struct nnb_loan *borrow(uint64_t burst, const struct nnb_draft *draft, bool *is_lent) {
    *is_lent = false;
    struct nnb_slot *slot = nnb_handle_try_lock(burst, NNB_BURST);
    if (slot == NULL) {
        return NULL; /* freed, or just being looked at by another thread: the Python side sorts that out */
    }
    struct nnb_loan *loan = NULL;
    for (uint32_t i = 0; loan == NULL && i < slot->fast.loan_count; i++) {
        loan = suits(slot->fast.loans[i], draft) ? slot->fast.loans[i] : NULL;
    }
    /* SYNC POINT V: what the borrower before has done to the pool is over. */
    if (loan != NULL && !nnb_try_lock(&loan->busy)) {
        *is_lent = true;
        loan = NULL;
    }
    nnb_handle_unlock(slot);
    return loan;
}

/* Runs a borrowed request for a draft whose slot is locked, and gives it back. */
static int run(struct nnb_slot *slot, uint64_t execution, struct nnb_loan *loan) {
    struct nnb_draft *draft = nnb_slot_draft(slot);
    int code = ANEURALNETWORKS_NO_ERROR;
    bool is_in_place = false;
    copy_in(draft, loan);
    nnb_slot_set_computing(slot, true);
    int status = loan->run(loan->bound);
    if (status == NNB_RUN_BUSY) {
        code = ANEURALNETWORKS_BAD_STATE; /* RT:B2; and it stays as it is */
    } else if (status != 0) {
        int64_t finished = nnb_services.finish_loan(execution, draft, loan, status);
        code = (int)(finished & ~(int64_t)NNB_IN_PLACE);
        is_in_place = (finished & NNB_IN_PLACE) != 0;
    }
    if (code == ANEURALNETWORKS_NO_ERROR && !is_in_place) {
        copy_out(draft, loan);
    }
    draft->completed = code == ANEURALNETWORKS_NO_ERROR;
    if (draft->adopted) {
        nnb_slot_drop_draft(slot);
    }
    nnb_slot_set_computing(slot, false);
    /* SYNC POINT V: the pool is the next borrower's. */
    nnb_unlock(&loan->busy);
    return code;
}

/* burstCompute of a draft that is locked; false if the Python side must do it. */
static bool burst_compute(struct nnb_slot *slot, const int64_t *words, int *code) {
    const struct nnb_draft *draft = nnb_slot_draft(slot);
    const struct nnb_template *template = draft->template;
    if (draft->completed || draft->set != template->input_count + template->output_count) {
        return false;
    }
    bool is_lent;
    struct nnb_loan *loan = borrow((uint64_t)words[1], draft, &is_lent);
    if (loan != NULL) {
        *code = run(slot, (uint64_t)words[0], loan);
    } else if (is_lent) {
        *code = ANEURALNETWORKS_BAD_STATE; /* RT:B2 */
    }
    return loan != NULL || is_lent;
}

/* A call for a draft that is locked. */
static bool call_locked(enum nnb_function function, struct nnb_slot *slot, const int64_t *words, int *code) {
    switch (function) {
    case NNB_EXECUTION_SET_INPUT:
        return note_address(nnb_slot_draft(slot), false, words);
    case NNB_EXECUTION_SET_OUTPUT:
        return note_address(nnb_slot_draft(slot), true, words);
    case NNB_EXECUTION_SET_INPUT_FROM_MEMORY:
        return note_range(nnb_slot_draft(slot), false, words);
    case NNB_EXECUTION_SET_OUTPUT_FROM_MEMORY:
        return note_range(nnb_slot_draft(slot), true, words);
    case NNB_EXECUTION_SET_REUSABLE: /* it is not, unless that is asked for */
        return words[1] == 0 && !nnb_slot_draft(slot)->completed;
    case NNB_EXECUTION_BURST_COMPUTE:
        return burst_compute(slot, words, code);
    default:
        return false;
    }
}

bool nnb_draft_call(enum nnb_function function, const int64_t *words, int *code) {
    *code = ANEURALNETWORKS_NO_ERROR;
    if (function == NNB_EXECUTION_CREATE) {
        return create((uint64_t)words[0], (uint64_t *)(uintptr_t)words[1]);
    }
    bool computes;
    struct nnb_slot *slot = lock_draft((uint64_t)words[0], &computes);
    if (slot == NULL) {
        return false; /* one that computes is refused once the arguments have been checked */
    }
    if (function == NNB_EXECUTION_FREE) {
        nnb_slot_drop_draft(slot);
        nnb_handle_end_locked(slot, (uint64_t)words[0]);
        return true;
    }
    bool done = call_locked(function, slot, words, code);
    nnb_handle_unlock(slot);
    return done;
}

int nnb_draft_adopted(uint64_t execution, const char *name) {
    bool computes;
    struct nnb_slot *slot = lock_draft(execution, &computes);
    if (slot == NULL) {
        if (computes) {
            nnb_log("%s: it is computing", name);
        }
        return computes ? ANEURALNETWORKS_BAD_STATE : ANEURALNETWORKS_NO_ERROR; /* RT:E4 */
    }
    struct nnb_draft *draft = nnb_slot_draft(slot);
    int code = (int)nnb_services.adopt(execution, draft);
    if (draft->adopted) {
        nnb_slot_drop_draft(slot);
    }
    nnb_handle_unlock(slot);
    return code;
}
