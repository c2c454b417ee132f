/* A cffi call converts each argument. These objects convert their arguments in advance, so that sending a
 * bound array is a builtin without arguments. Everything here but the wait itself runs with the interpreter
 * lock. 
 * An outcome that is neither "done" nor "not now" is passed to a Python function, which raises. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <Python.h>
#pragma GCC diagnostic pop

#include "queue_python.h"

#include <float.h>

#include "clock.h"
#include "queue.h"

#define SLICE_NS 50000000u /* how long a signal may wait: 50 ms */
#define CLOSE_NS 10000000000u /* how long a thread that waits may take to come out: 10 s */
#define LONGEST_NS ((uint64_t)1 << 62) /* about 146 years */
#define MOST_EXPECTED 65536 /* bytes of a message for which memory is got before it is there */

struct end_object {
    PyObject_HEAD
    struct nnb_end end;
    uint64_t quantum;
    PyObject *keep;     /* what `end` points into */
    PyObject *arrays;   /* numpy's class of arrays, but none of its subclasses, which may have masks */
    PyObject *empty;    /* (count, dtype) -> a new array */
    PyObject *dtype;    /* arrays of it are taken as they are */
    PyObject *alike;    /* another object for the same dtype, as arrays often have one; NULL before the first */
    PyObject *elements; /* (object) -> bytes of whole elements, contiguous, or an error */
    PyObject *fail;     /* (end, status, argument or None) raises */
    Py_ssize_t expected; /* length of the message before, as the next one is likely to have; 0 if unknown or long */
    uint32_t opened;
};

struct bound_object {
    PyObject_HEAD
    struct end_object *owner;
    PyObject *array; /* what a receiver returns */
    PyObject *queue; /* kept, since the end is closed with it */
    Py_buffer memory;
    uint64_t count;
    uint64_t timeout_ns;
};

static PyObject *name_of_dtype;
static PyTypeObject *bound_type;

/* Raises the exception for `status`. */
static PyObject *fail_with(struct end_object *self, int status, PyObject *argument) {
    if (!PyErr_Occurred()) {
        PyObject *raised =
            PyObject_CallFunction(self->fail, "OiO", (PyObject *)self, status, argument);
        Py_XDECREF(raised);
        if (raised != NULL) {
            PyErr_Format(PyExc_SystemError, "status %d of a queue's end has no error", status);
        }
    }
    return NULL;
}

static PyObject *fail(struct end_object *self, int status) { return fail_with(self, status, Py_None); }

static bool is_not_now(int status) { return status == NNB_RING_FULL || status == NNB_RING_EMPTY; }

/* The same for a call that may wait: elements that a broadcast's reader missed are counted, and others will
 * come. */
static bool is_not_yet(int status) { return is_not_now(status) || status == NNB_RING_OVERRUN; }

/* An operation of an end that does not wait; a message's length is not known before. */
typedef int (*attempt)(struct nnb_end *end, void *memory, uint64_t count);

static int write_elements(struct nnb_end *end, void *memory, uint64_t count) {
    return nnb_end_write(end, memory, count);
}

static int send_message(struct nnb_end *end, void *memory, uint64_t length) {
    return nnb_end_send(end, memory, length);
}

/* Takes the next message as a bytes object: that in `*found` if it has the length, else a new one. */
static int receive_message(struct nnb_end *end, void *found, uint64_t unused) {
    (void)unused;
    PyObject **bytes = found;
    uint64_t length;
    int status = nnb_end_message(end, &length);
    if (status != NNB_RING_OK) {
        return status;
    }
    if (*bytes == NULL || (uint64_t)PyBytes_Size(*bytes) != length) {
        Py_XDECREF(*bytes);
        *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    }
    /* Without memory there is an exception already. */
    return *bytes == NULL ? NNB_END_FAILED : nnb_end_receive(end, PyBytes_AsString(*bytes), length);
}

static int begin_claim(struct nnb_end *end, void *regions, uint64_t count) {
    return nnb_end_begin(end, count, regions);
}

/* Repeats an operation until it returns another status than "not now"; `wanted` is the number of elements
 * that must be free or readable. Returns NNB_END_INTERRUPTED with an exception that a signal handler raised.
 * */
static int attempt_until(struct nnb_end *end, attempt act, void *memory, uint64_t count, uint64_t wanted,
                         uint64_t timeout_ns) {
    if (end->flag == NULL) {
        return NNB_END_UNWAITABLE;
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    for (;;) {
        uint64_t slice = nnb_deadline_after(nnb_now_ns(), SLICE_NS);
        uint64_t until = slice < deadline ? slice : deadline;
        int status = nnb_end_enter(end); /* and out again with the interpreter lock: see nnb_end_enter */
        if (status == NNB_RING_OK) {
            Py_BEGIN_ALLOW_THREADS
            status = nnb_end_wait_inside(end, wanted, until);
            Py_END_ALLOW_THREADS
            nnb_end_leave(end);
        }
        if (status == NNB_RING_OK) {
            status = act(end, memory, count);
            if (!is_not_yet(status)) {
                return status;
            }
            status = nnb_now_ns() < deadline ? NNB_END_INTERRUPTED : NNB_END_TIMED_OUT;
        }
        if (status != NNB_END_INTERRUPTED && status != NNB_END_TIMED_OUT) {
            return status;
        }
        if (PyErr_CheckSignals() != 0) {
            return NNB_END_INTERRUPTED;
        }
        if (status == NNB_END_TIMED_OUT && until == deadline) {
            return NNB_END_TIMED_OUT;
        }
    }
}

/* Runs an operation now, or within the timeout. */
static inline int run(struct nnb_end *end, attempt act, void *memory, uint64_t count, uint64_t wanted,
                      uint64_t timeout_ns) {
    int status = nnb_end_check(end);
    if (status != NNB_RING_OK) {
        return status;
    }
    status = act(end, memory, count);
    if (!(timeout_ns == 0 ? is_not_now(status) : is_not_yet(status))) {
        return status;
    }
    if (timeout_ns == 0) {
        int peer = nnb_end_look(end);
        if (peer != NNB_RING_OK) { /* the other end may have written just before it ended */
            status = act(end, memory, count);
        }
        return is_not_now(status) && peer != NNB_RING_OK ? peer : status;
    }
    if (end->flag != NULL && nnb_end_expect(end, wanted)) {
        status = act(end, memory, count);
        if (!is_not_yet(status)) {
            return status;
        }
    }
    return attempt_until(end, act, memory, count, wanted, timeout_ns);
}

/* Returns True if done, False if not now or no longer possible, else an error. */
static inline PyObject *answer(struct end_object *self, int status) {
    switch (status) {
    case NNB_RING_OK:
        Py_RETURN_TRUE;
    case NNB_RING_FULL:
    case NNB_RING_EMPTY:
    case NNB_RING_TOO_LARGE:
    case NNB_RING_OVERRUN:
    case NNB_END_TIMED_OUT:
        Py_RETURN_FALSE;
    default:
        return fail(self, status);
    }
}

/* None instead of False. */
static PyObject *none_unless_failed(struct end_object *self, int status) {
    PyObject *found = answer(self, status);
    Py_XDECREF(found);
    if (found == NULL) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Converts seconds to nanoseconds; false with an exception if it is not a valid time. */
static bool take_timeout(struct end_object *self, PyObject *seconds, uint64_t *timeout_ns) {
    double value = PyFloat_AsDouble(seconds);
    if (value == 0.0) {
        *timeout_ns = 0;
        return true;
    }
    if (!(value > 0.0 && value <= DBL_MAX)) { /* also NaN, and -1 with an error */
        PyErr_Clear();
        (void)fail_with(self, NNB_END_BAD_TIMEOUT, seconds);
        return false;
    }
    double longest = (double)LONGEST_NS;
    *timeout_ns = value * 1e9 < longest ? (uint64_t)(value * 1e9) : LONGEST_NS;
    return true;
}

/* Converts a number of elements; false with an exception if it is not an integer of 64 bits without sign. */
static bool take_count(struct end_object *self, PyObject *wanted, uint64_t *count) {
    PyObject *number = PyNumber_Index(wanted);
    *count = number == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        (void)fail_with(self, NNB_END_BAD_COUNT, wanted);
        return false;
    }
    return true;
}

static bool has_arguments(Py_ssize_t given, Py_ssize_t wanted) {
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, given);
    }
    return given == wanted;
}

/* The arguments of a public method, by place or by name: `first` unless that is NULL, and `timeout`, 0 without. */
static bool take_arguments(struct end_object *self, const char *first, PyObject *const *args, Py_ssize_t given,
                           PyObject *names, PyObject **object, uint64_t *timeout_ns) {
    const char *const known[2] = {first, "timeout"};
    PyObject *values[2] = {NULL, NULL};
    Py_ssize_t skipped = first == NULL ? 1 : 0;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (given > 2 - skipped) {
        PyErr_Format(PyExc_TypeError, "takes at most %zd arguments, got %zd", 2 - skipped, given);
        return false;
    }
    for (Py_ssize_t i = 0; i < given; i++) {
        values[i + skipped] = args[i];
    }
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        Py_ssize_t at = skipped;
        while (at < 2 && PyUnicode_CompareWithASCIIString(name, known[at]) != 0) {
            at++;
        }
        if (at == 2 || values[at] != NULL) {
            PyErr_Format(PyExc_TypeError, "got %s keyword argument '%U'",
                         at == 2 ? "an unexpected" : "twice the", name);
            return false;
        }
        values[at] = args[given + i];
    }
    if (first != NULL && values[0] == NULL) {
        PyErr_Format(PyExc_TypeError, "missing 1 required argument: '%s'", first);
        return false;
    }
    *object = values[0];
    *timeout_ns = 0;
    return values[1] == NULL || take_timeout(self, values[1], timeout_ns);
}

/* Whether this is the queue's dtype. */
static bool is_dtype(struct end_object *self, PyObject *dtype) {
    if (dtype == self->dtype || dtype == self->alike) {
        return true;
    }
    if (PyObject_RichCompareBool(dtype, self->dtype, Py_EQ) != 1) {
        return false;
    }
    PyObject *before = self->alike;
    Py_INCREF(dtype);
    self->alike = dtype;
    Py_XDECREF(before);
    return true;
}

/* Gets the bytes of an array of this queue's dtype, or of an object that can be converted to one. */
static bool take_elements(struct end_object *self, PyObject *object, int flags, Py_buffer *memory) {
    bool as_it_is = false;
    if ((PyObject *)Py_TYPE(object) == self->arrays) {
        PyObject *dtype = PyObject_GetAttr(object, name_of_dtype);
        as_it_is = dtype != NULL && is_dtype(self, dtype);
        Py_XDECREF(dtype);
    } else if (PyBytes_CheckExact(object) && (flags & PyBUF_WRITABLE) == 0) {
        as_it_is = (uint64_t)PyBytes_Size(object) % self->quantum == 0;
    }
    if (as_it_is && PyObject_GetBuffer(object, memory, flags) == 0) {
        return true;
    }
    PyErr_Clear();
    PyObject *bytes = PyObject_CallFunctionObjArgs(
        self->elements, object, (flags & PyBUF_WRITABLE) != 0 ? Py_True : Py_False, NULL);
    if (bytes == NULL) {
        return false;
    }
    int got = PyObject_GetBuffer(bytes, memory, flags);
    Py_DECREF(bytes); /* `memory` keeps it */
    return got == 0;
}

static PyObject *end_write(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    struct end_object *self = (struct end_object *)object;
    PyObject *elements;
    uint64_t timeout_ns;
    if (!take_arguments(self, "elements", args, given, names, &elements, &timeout_ns)) {
        return NULL;
    }
    Py_buffer memory;
    if (!take_elements(self, elements, PyBUF_SIMPLE, &memory)) {
        return NULL;
    }
    uint64_t count = (uint64_t)memory.len / self->quantum;
    int status = (uint64_t)memory.len % self->quantum != 0
                     ? NNB_END_BAD_SIZE
                     : run(&self->end, write_elements, memory.buf, count, count, timeout_ns);
    PyBuffer_Release(&memory);
    return answer(self, status);
}

/* (count, timeout): a new array of so many elements, or None. */
static PyObject *end_read(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    struct end_object *self = (struct end_object *)object;
    PyObject *wanted;
    uint64_t timeout_ns, count;
    if (!take_arguments(self, "count", args, given, names, &wanted, &timeout_ns) ||
        !take_count(self, wanted, &count)) {
        return NULL;
    }
    if (count > self->end.ring->capacity_bytes / self->quantum) {
        return none_unless_failed(self, nnb_end_check(&self->end));
    }
    /* Made before the wait, so that it does not delay the result. */
    PyObject *array = PyObject_CallFunction(self->empty, "KO", (unsigned long long)count, self->dtype);
    Py_buffer memory;
    if (array == NULL || !take_elements(self, array, PyBUF_WRITABLE, &memory)) {
        Py_XDECREF(array);
        return NULL;
    }
    int status = run(&self->end, nnb_end_read, memory.buf, count, count, timeout_ns);
    PyBuffer_Release(&memory);
    if (status == NNB_RING_OK) {
        return array;
    }
    Py_DECREF(array);
    return none_unless_failed(self, status);
}

static PyObject *end_read_into(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    struct end_object *self = (struct end_object *)object;
    PyObject *array;
    uint64_t timeout_ns;
    if (!take_arguments(self, "array", args, given, names, &array, &timeout_ns)) {
        return NULL;
    }
    Py_buffer memory;
    if (!take_elements(self, array, PyBUF_WRITABLE, &memory)) {
        return NULL;
    }
    uint64_t count = (uint64_t)memory.len / self->quantum;
    int status = (uint64_t)memory.len % self->quantum != 0
                     ? NNB_END_BAD_SIZE
                     : run(&self->end, nnb_end_read, memory.buf, count, count, timeout_ns);
    PyBuffer_Release(&memory);
    return answer(self, status);
}

static PyObject *end_send(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    struct end_object *self = (struct end_object *)object;
    PyObject *message;
    uint64_t timeout_ns;
    if (!take_arguments(self, "message", args, given, names, &message, &timeout_ns)) {
        return NULL;
    }
    Py_buffer memory = {.obj = NULL};
    if (PyBytes_CheckExact(message)) { /* its memory stays as it is as long as the caller has it */
        memory.buf = PyBytes_AsString(message);
        memory.len = PyBytes_Size(message);
    } else if (!PyByteArray_CheckExact(message) || PyObject_GetBuffer(message, &memory, PyBUF_SIMPLE) != 0) {
        PyErr_Clear();
        PyObject *bytes = PyObject_CallFunctionObjArgs(self->elements, message, Py_False, NULL);
        int got = bytes == NULL ? -1 : PyObject_GetBuffer(bytes, &memory, PyBUF_SIMPLE);
        Py_XDECREF(bytes);
        if (got != 0) {
            return NULL;
        }
    }
    uint64_t length = (uint64_t)memory.len;
    int status = run(&self->end, send_message, memory.buf, length, length + NNB_MESSAGE_HEADER, timeout_ns);
    PyBuffer_Release(&memory);
    return status == NNB_RING_TOO_LARGE ? fail_with(self, status, message) : answer(self, status);
}

static PyObject *end_receive(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    struct end_object *self = (struct end_object *)object;
    PyObject *unused;
    uint64_t timeout_ns;
    if (!take_arguments(self, NULL, args, given, names, &unused, &timeout_ns)) {
        return NULL;
    }
    /* Probably as long as the last one; made before the wait, so that it does not delay the result. */
    PyObject *bytes =
        timeout_ns != 0 && self->expected != 0 ? PyBytes_FromStringAndSize(NULL, self->expected) : NULL;
    PyErr_Clear();
    int status = run(&self->end, receive_message, &bytes, 0, 1, timeout_ns);
    if (status == NNB_RING_OK) {
        Py_ssize_t length = PyBytes_Size(bytes);
        self->expected = length <= MOST_EXPECTED ? length : 0;
        return bytes;
    }
    Py_XDECREF(bytes);
    return none_unless_failed(self, status);
}

/* Addresses and sizes of both parts of a claim; None if not now. */
static PyObject *end_begin(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    struct end_object *self = (struct end_object *)object;
    uint64_t timeout_ns, count;
    if (!has_arguments(given, 2) || !take_count(self, args[0], &count) ||
        !take_timeout(self, args[1], &timeout_ns)) {
        return NULL;
    }
    struct nnb_ring_regions regions;
    int status = run(&self->end, begin_claim, &regions, count, count, timeout_ns);
    if (status == NNB_RING_OK) {
        return Py_BuildValue("KKKK", (unsigned long long)(uintptr_t)regions.first,
                             (unsigned long long)regions.first_bytes,
                             (unsigned long long)(uintptr_t)regions.second,
                             (unsigned long long)regions.second_bytes);
    }
    return none_unless_failed(self, status);
}

static PyObject *end_commit(PyObject *object, PyObject *number) {
    struct end_object *self = (struct end_object *)object;
    uint64_t count;
    if (!take_count(self, number, &count)) {
        return NULL;
    }
    int status = nnb_end_check(&self->end);
    return answer(self, status == NNB_RING_OK ? nnb_end_commit(&self->end, count) : status);
}

static PyObject *end_close(PyObject *object, PyObject *unused) {
    struct end_object *self = (struct end_object *)object;
    (void)unused;
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), CLOSE_NS);
    while (self->opened && nnb_end_close(&self->end) == NNB_END_BUSY && nnb_now_ns() < deadline) {
        Py_BEGIN_ALLOW_THREADS
        struct timespec moment = {.tv_nsec = 100000};
        (void)nanosleep(&moment, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

/* The descriptor for an event loop. */
static PyObject *end_watch(PyObject *object, PyObject *unused) {
    struct end_object *self = (struct end_object *)object;
    (void)unused;
    int status = nnb_end_check(&self->end);
    if (status == NNB_RING_OK && !nnb_end_can_watch(&self->end)) {
        status = NNB_END_UNWAITABLE;
    }
    if (status != NNB_RING_OK) {
        return fail(self, status);
    }
    int fd = nnb_end_watch(&self->end);
    return fd < 0 ? fail(self, NNB_END_FAILED) : PyLong_FromLong(fd);
}

/* (count): whether the descriptor becomes readable with the other end's next operation; only after `watch`.
 * */
static PyObject *end_arm(PyObject *object, PyObject *number) {
    struct end_object *self = (struct end_object *)object;
    uint64_t count;
    if (!take_count(self, number, &count)) {
        return NULL;
    }
    int status = self->end.watched > 0 ? nnb_end_check(&self->end) : NNB_END_CLOSED;
    return status == NNB_RING_OK ? PyBool_FromLong(nnb_end_arm(&self->end, count)) : fail(self, status);
}

static PyObject *end_wake_self(PyObject *object, PyObject *unused) {
    struct end_object *self = (struct end_object *)object;
    (void)unused;
    if (nnb_end_is_open(&self->end)) {
        nnb_end_wake_self(&self->end);
    }
    Py_RETURN_NONE;
}

/* Number of the process at the other end, or 0. */
static PyObject *end_peer(PyObject *object, PyObject *unused) {
    struct end_object *self = (struct end_object *)object;
    (void)unused;
    return PyLong_FromUnsignedLong(nnb_end_is_open(&self->end) ? nnb_end_peer(&self->end) : 0);
}

static PyObject *end_available(PyObject *object, PyObject *unused) {
    struct end_object *self = (struct end_object *)object;
    (void)unused;
    return PyLong_FromUnsignedLongLong(nnb_end_available(&self->end));
}

/* (waits, sleeps, nanoseconds spun, pauses for scarce cores, errno of a failure). */
static PyObject *end_statistics(PyObject *object, PyObject *unused) {
    const struct nnb_end *end = &((struct end_object *)object)->end;
    (void)unused;
    return Py_BuildValue("KKKKi", (unsigned long long)end->waits, (unsigned long long)end->waiter.sleeps,
                         (unsigned long long)end->waiter.spun_ns,
                         (unsigned long long)end->waiter.contention.pauses, end->failed);
}

/* --- bound to an array --- */

static PyObject *bound_send(PyObject *object, PyObject *unused) {
    struct bound_object *bound = (struct bound_object *)object;
    (void)unused;
    return answer(bound->owner, run(&bound->owner->end, write_elements, bound->memory.buf, bound->count,
                                    bound->count, bound->timeout_ns));
}

static PyObject *bound_receive(PyObject *object, PyObject *unused) {
    struct bound_object *bound = (struct bound_object *)object;
    (void)unused;
    int status = run(&bound->owner->end, nnb_end_read, bound->memory.buf, bound->count, bound->count,
                     bound->timeout_ns);
    if (status == NNB_RING_OK) {
        Py_INCREF(bound->array);
        return bound->array;
    }
    return none_unless_failed(bound->owner, status);
}

static PyMethodDef send_definition = {"send", bound_send, METH_NOARGS, NULL};
static PyMethodDef receive_definition = {"receive", bound_receive, METH_NOARGS, NULL};

/* (array, its bytes, timeout, queue): a builtin that sends the array, or fills it and returns it. */
static PyObject *end_bind(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    struct end_object *self = (struct end_object *)object;
    uint64_t timeout_ns;
    if (!has_arguments(given, 4) || !take_timeout(self, args[2], &timeout_ns)) {
        return NULL;
    }
    struct bound_object *bound = PyObject_New(struct bound_object, bound_type);
    if (bound == NULL) {
        return NULL;
    }
    bound->owner = NULL;
    bound->array = NULL;
    bound->queue = NULL;
    if (PyObject_GetBuffer(args[1], &bound->memory, self->end.writes ? PyBUF_SIMPLE : PyBUF_WRITABLE) != 0) {
        bound->memory.obj = NULL;
        Py_DECREF(bound);
        return NULL;
    }
    Py_INCREF(object);
    Py_INCREF(args[0]);
    Py_INCREF(args[3]);
    bound->owner = self;
    bound->array = args[0];
    bound->queue = args[3];
    bound->count = (uint64_t)bound->memory.len / self->quantum;
    bound->timeout_ns = timeout_ns;
    PyObject *builtin = PyCFunction_NewEx(self->end.writes ? &send_definition : &receive_definition,
                                          (PyObject *)bound, NULL);
    Py_DECREF(bound);
    return builtin;
}

static void bound_dealloc(PyObject *object) {
    struct bound_object *bound = (struct bound_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (bound->memory.obj != NULL) {
        PyBuffer_Release(&bound->memory);
    }
    Py_XDECREF((PyObject *)bound->owner);
    Py_XDECREF(bound->array);
    Py_XDECREF(bound->queue);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* --- the class --- */

/* (ring, flag, words: addresses; writes, quota_allows, spin_window_ns, quantum, keep, arrays, empty,
 * dtype, elements, fail). */
static int end_init(PyObject *object, PyObject *args, PyObject *words) {
    struct end_object *self = (struct end_object *)object;
    unsigned long long ring, flag, ends, window, quantum;
    int writes, quota_allows;
    PyObject *keep, *arrays, *empty, *dtype, *elements, *raises;
    (void)words;
    if (self->opened) {
        PyErr_SetString(PyExc_TypeError, "the end is open");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "KKKppKKOOOOOO", &ring, &flag, &ends, &writes, &quota_allows, &window,
                          &quantum, &keep, &arrays, &empty, &dtype, &elements, &raises)) {
        return -1;
    }
    Py_INCREF(keep);
    Py_INCREF(arrays);
    Py_INCREF(empty);
    Py_INCREF(dtype);
    Py_INCREF(elements);
    Py_INCREF(raises);
    self->keep = keep;
    self->arrays = arrays;
    self->empty = empty;
    self->dtype = dtype;
    self->elements = elements;
    self->fail = raises;
    self->quantum = quantum;
    int status = nnb_end_open(&self->end, (struct nnb_ring *)(uintptr_t)ring,
                              (nnb_atomic_u32 *)(uintptr_t)flag, (uint8_t *)(uintptr_t)ends,
                              (uint32_t)writes, (uint32_t)quota_allows, window);
    if (status != NNB_RING_OK) {
        (void)fail(self, status);
        return -1;
    }
    self->opened = 1;
    return 0;
}

static void end_dealloc(PyObject *object) {
    struct end_object *self = (struct end_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->opened) {
        (void)nnb_end_close(&self->end); /* no thread is inside: it would hold a reference */
    }
    Py_XDECREF(self->keep);
    Py_XDECREF(self->arrays);
    Py_XDECREF(self->empty);
    Py_XDECREF(self->dtype);
    Py_XDECREF(self->alike);
    Py_XDECREF(self->elements);
    Py_XDECREF(self->fail);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
#define METHOD(name, arguments) name "($self, " arguments ")\n--\n\nSee nnburst.fmq.MessageQueue." name "."

static PyMethodDef end_methods[] = {
    /* These are a queue's own methods once it is used. */
    {"write", FAST(end_write), METH_FASTCALL | METH_KEYWORDS, METHOD("write", "elements, timeout=0.0")},
    {"read", FAST(end_read), METH_FASTCALL | METH_KEYWORDS, METHOD("read", "count, timeout=0.0")},
    {"read_into", FAST(end_read_into), METH_FASTCALL | METH_KEYWORDS, METHOD("read_into", "array, timeout=0.0")},
    {"send", FAST(end_send), METH_FASTCALL | METH_KEYWORDS, METHOD("send", "message, timeout=0.0")},
    {"receive", FAST(end_receive), METH_FASTCALL | METH_KEYWORDS, METHOD("receive", "timeout=0.0")},
    {"begin", FAST(end_begin), METH_FASTCALL, NULL},
    {"commit", end_commit, METH_O, NULL},
    {"bind", FAST(end_bind), METH_FASTCALL, NULL},
    {"close", end_close, METH_NOARGS, NULL},
    {"watch", end_watch, METH_NOARGS, NULL},
    {"arm", end_arm, METH_O, NULL},
    {"wake_self", end_wake_self, METH_NOARGS, NULL},
    {"peer", end_peer, METH_NOARGS, NULL},
    {"available", end_available, METH_NOARGS, NULL},
    {"statistics", end_statistics, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot end_slots[] = {
    {Py_tp_doc, "One end of a queue, in C; see nnburst.fmq."},
    {Py_tp_init, (void *)end_init},
    {Py_tp_new, (void *)PyType_GenericNew},
    {Py_tp_dealloc, (void *)end_dealloc},
    {Py_tp_methods, end_methods},
    {0, NULL},
};

static PyType_Slot bound_slots[] = {
    {Py_tp_dealloc, (void *)bound_dealloc},
    {0, NULL},
};

static PyType_Spec end_spec = {
    .name = "nnburst._native.QueueEnd",
    .basicsize = sizeof(struct end_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = end_slots,
};

static PyType_Spec bound_spec = {
    .name = "nnburst._native.BoundQueueEnd",
    .basicsize = sizeof(struct bound_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bound_slots,
};

int nnb_queue_add_types(void) {
    PyObject *module = PyImport_ImportModule("nnburst._native");
    if (module == NULL) {
        return -1;
    }
    PyObject *kind = NULL;
    name_of_dtype = PyUnicode_InternFromString("dtype");
    bound_type = (PyTypeObject *)PyType_FromSpec(&bound_spec);
    if (name_of_dtype != NULL && bound_type != NULL) {
        kind = PyType_FromSpec(&end_spec);
    }
    int failed = kind == NULL ? -1 : PyObject_SetAttrString(module, "QueueEnd", kind);
    Py_XDECREF(kind);
    Py_DECREF(module);
    return failed;
}
