/* States of a session that stay in the engine's memory, by slot. onnxruntime.c includes this file. */
#ifndef NNB_ONNX_STATES_H
#define NNB_ONNX_STATES_H

/* One sequence: the values of its states. */
struct slot {
    uint64_t number;
    uint64_t steps; /* runs that have ended well */
    bool busy;
    bool is_abandoned; /* closed or opened anew during its run, which frees it */
    handle *values;    /* of each state what the next run reads, then where it writes: NULL if the engine makes it */
    uint8_t **memory;  /* of each of them; NULL if it is the engine's, or the same */
};

struct nnb_onnx_states {
    struct nnb_onnx_session *session;
    struct nnb_onnx_state *states;
    uint32_t count;
    uint32_t most;
    struct slot **slots; /* NULL for a free place */
    pthread_mutex_t lock;
};

static void slot_free(struct nnb_onnx_states *states, struct slot *slot) {
    for (uint32_t i = 0; i < 2 * states->count; i++) {
        bool same = i >= states->count && slot->values && slot->values[i] == slot->values[i - states->count];
        if (slot->values && slot->values[i] && !same) {
            RELEASE(RELEASE_VALUE, slot->values[i]);
        }
    }
    for (uint32_t i = 0; i < 2 * states->count && slot->memory; i++) {
        free(slot->memory[i]);
    }
    free((void *)slot->values);
    free((void *)slot->memory);
    free(slot);
}

/* Makes a value of zeros, whose pages the kernel allocates at their first use. */
static bool make_value(struct slot *slot, uint32_t at, const struct nnb_onnx_state *state, char *message) {
    uint64_t bytes = state->element_bytes;
    for (uint32_t i = 0; i < state->rank; i++) {
        bytes *= (uint64_t)state->dimensions[i];
    }
    uint8_t *memory = slot->memory[at] = calloc(1, bytes + NNB_ONNX_ALIGNMENT);
    if (!memory) {
        return false;
    }
    memory += (NNB_ONNX_ALIGNMENT - (uintptr_t)memory % NNB_ONNX_ALIGNMENT) % NNB_ONNX_ALIGNMENT;
    return went_well(CALL(CREATE_TENSOR_WITH_DATA, handle, void *, size_t, const int64_t *, size_t, int, handle *)(
                         engine.memory_info, memory, bytes, state->dimensions, state->rank, state->element,
                         &slot->values[at]),
                     message);
}

static struct slot *slot_new(struct nnb_onnx_states *states, uint64_t number, char *message) {
    struct slot *slot = calloc(1, sizeof *slot);
    if (!slot) {
        return NULL;
    }
    slot->number = number;
    slot->values = calloc(2 * (size_t)states->count + 1, sizeof *slot->values);
    slot->memory = calloc(2 * (size_t)states->count + 1, sizeof *slot->memory);
    bool done = slot->values && slot->memory;
    for (uint32_t i = 0; done && i < states->count; i++) {
        const struct nnb_onnx_state *state = &states->states[i];
        done = make_value(slot, i, state, message);
        if (state->kind == NNB_ONNX_IN_PLACE) {
            slot->values[states->count + i] = slot->values[i];
        } else if (done && state->kind == NNB_ONNX_IN_TURNS) {
            done = make_value(slot, states->count + i, state, message);
        }
    }
    if (!done) {
        slot_free(states, slot);
        return NULL;
    }
    return slot;
}

/* The place of a slot, or of a free one for number 0; `most` if there is no such slot. */
static uint32_t find_slot(const struct nnb_onnx_states *states, uint64_t number) {
    uint32_t at = 0;
    while (at < states->most &&
           !(number ? states->slots[at] && states->slots[at]->number == number : !states->slots[at])) {
        at++;
    }
    return at;
}

/* Closes the slot of a number, if there is one. During a run, of a request that was given up, it only loses its
 * number, and keeps its place until the run ends. */
static void close_slot(struct nnb_onnx_states *states, uint64_t number) {
    uint32_t at = find_slot(states, number);
    if (number == 0 || at == states->most) {
        return;
    }
    struct slot *slot = states->slots[at];
    if (slot->busy) {
        slot->number = 0;
        slot->is_abandoned = true;
    } else {
        slot_free(states, slot);
        states->slots[at] = NULL;
    }
}

/* Opens a slot; an open slot is opened anew. */
static int32_t open_slot(struct nnb_onnx_states *states, uint64_t number, char *message) {
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "out of memory for a slot's states");
    close_slot(states, number); /* first, since both may be more memory than there is */
    uint32_t at = find_slot(states, 0);
    if (number == 0 || at == states->most) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "the client has %u slots, as many as it may", states->most);
        return NNBX_RESOURCE_EXHAUSTED_PERSISTENT;
    }
    states->slots[at] = slot_new(states, number, message);
    return states->slots[at] ? NNBX_NONE : NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
}

/* Enters a slot for a run after `steps` others; NULL with the reason in `code` after a failure. */
static struct slot *enter_slot(struct nnb_onnx_states *states, uint64_t number, uint64_t steps, int32_t *code,
                               char *message) {
    uint32_t at = number ? find_slot(states, number) : states->most;
    struct slot *slot = at < states->most ? states->slots[at] : NULL;
    if (!slot || slot->steps != steps) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "the slot's state is lost: it is not after %llu runs",
                 (unsigned long long)steps);
        *code = NNBX_DEVICE_UNAVAILABLE;
        return NULL;
    }
    if (slot->busy) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "another run of the slot is under way");
        *code = NNBX_GENERAL_FAILURE;
        return NULL;
    }
    slot->busy = true;
    return slot;
}

/* Ends a run of a slot. */
static void leave_slot(struct nnb_onnx_states *states, struct slot *slot) {
    slot->busy = false;
    for (uint32_t at = 0; slot->is_abandoned && at < states->most; at++) {
        if (states->slots[at] == slot) {
            states->slots[at] = NULL;
            slot_free(states, slot);
            return;
        }
    }
}

/* Makes the states that a run has written those that the next run reads. */
static void turn_slot(struct nnb_onnx_states *states, struct slot *slot, struct nnb_onnx_call *call) {
    for (uint32_t i = 0; i < states->count; i++) {
        const struct nnb_onnx_state *state = &states->states[i];
        handle *now = &slot->values[i];
        handle *next = &slot->values[states->count + i];
        handle before = *now;
        if (state->kind == NNB_ONNX_IN_TURNS) {
            *now = *next;
            *next = before;
        } else if (state->kind == NNB_ONNX_GROWING) {
            *now = call->values[1][state->output];
            call->values[1][state->output] = NULL;
            RELEASE(RELEASE_VALUE, before);
            free(slot->memory[i]); /* the engine's own from now on */
            slot->memory[i] = NULL;
        }
    }
    slot->steps++;
}

struct nnb_onnx_states *nnb_onnx_states_new(struct nnb_onnx_session *session, const struct nnb_onnx_state *described,
                                            uint32_t count, uint32_t most) {
    struct nnb_onnx_states *made = calloc(1, sizeof *made);
    if (!made) {
        return NULL;
    }
    pthread_mutex_init(&made->lock, NULL);
    made->session = session;
    made->states = calloc((size_t)count + 1, sizeof *made->states);
    made->slots = calloc((size_t)most + 1, sizeof *made->slots);
    if (!made->states || !made->slots) {
        nnb_onnx_states_free(made);
        return NULL;
    }
    memcpy(made->states, described, count * sizeof *described);
    made->count = count;
    made->most = most;
    return made;
}

void nnb_onnx_states_free(struct nnb_onnx_states *states) {
    for (uint32_t at = 0; states->slots && at < states->most; at++) {
        if (states->slots[at]) {
            slot_free(states, states->slots[at]);
        }
    }
    pthread_mutex_destroy(&states->lock);
    free(states->states);
    free((void *)states->slots);
    free(states);
}

void nnb_onnx_use_states(struct nnb_onnx_call *call, struct nnb_onnx_states *states, const uint8_t *word) {
    call->states = states;
    call->word = word;
}

uint64_t nnb_onnx_state_address(struct nnb_onnx_states *states, uint64_t number, uint32_t state, int next) {
    char message[NNB_ONNX_MESSAGE_BYTES];
    void *data = NULL;
    pthread_mutex_lock(&states->lock);
    uint32_t at = find_slot(states, number);
    if (number != 0 && at < states->most && state < states->count) {
        handle value = states->slots[at]->values[state + (next ? states->count : 0)];
        if (value) {
            (void)went_well(CALL(GET_TENSOR_DATA, handle, void **)(value, &data), message);
        }
    }
    pthread_mutex_unlock(&states->lock);
    return (uint64_t)(uintptr_t)data;
}

/* Runs with the states of the slot that the request names, or opens or closes the slot. */
static int32_t run_with_states(struct nnb_onnx_call *call, struct nnbx_outcome *outcome, char *message) {
    struct nnb_onnx_states *states = call->states;
    struct slot *slot = NULL;
    uint64_t word[2];
    int32_t code = NNBX_NONE;
    memcpy(word, call->word, sizeof word); /* TRUST: copied once; any number is searched among the client's
                                            * slots */
    pthread_mutex_lock(&states->lock);
    if (word[1] == NNB_ONNX_OPEN_SLOT) {
        code = open_slot(states, word[0], message);
    } else if (word[1] == NNB_ONNX_CLOSE_SLOT) {
        close_slot(states, word[0]);
    } else {
        slot = enter_slot(states, word[0], word[1], &code, message);
    }
    pthread_mutex_unlock(&states->lock);
    if (!slot) {
        if (code == NNBX_NONE && call->finds) {
            describe_nothing(call, outcome);
        }
        return code;
    }
    for (uint32_t i = 0; i < states->count; i++) {
        call->values[0][states->states[i].input] = slot->values[i];
        call->values[1][states->states[i].output] = slot->values[states->count + i];
    }
    code = run_and_take(call, outcome, message);
    if (code == NNBX_NONE) {
        turn_slot(states, slot, call);
    }
    for (uint32_t i = 0; i < states->count; i++) {
        const struct nnb_onnx_state *state = &states->states[i];
        handle *written = &call->values[1][state->output];
        if (state->kind == NNB_ONNX_GROWING && *written) { /* of a run that is to be repeated */
            RELEASE(RELEASE_VALUE, *written);
        }
        *written = NULL;
        call->values[0][state->input] = NULL;
    }
    pthread_mutex_lock(&states->lock);
    leave_slot(states, slot);
    pthread_mutex_unlock(&states->lock);
    return code;
}

#endif
