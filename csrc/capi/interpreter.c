#include "interpreter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "environment.h"
#include "handles.h"
#include "log.h"
#include "python.h"

#define ENTRY "nnburst.capi.entry"
#define OLDEST_MINOR 11

enum state { UNTRIED, STARTING, STARTED, REFUSED };
enum end { NOT_GONE, FORKED, FINALIZED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nnb_atomic_u32 state; /* of enum state */
static nnb_atomic_u32 gone;   /* of enum end */
static nnb_atomic_u32 inside; /* calls of the Python side */
static nnb_atomic_u32 explained;

static uint64_t new_handle(uint32_t kind) { return nnb_handle_new((enum nnb_handle_kind)kind); }

/* Called by the Python side after a computation of `execution`, with the request that C may run from now on;
 * and with NULL before a computation that C must not repeat. The calling thread has not locked the
 * execution's slot. A run that is under way does not use the new request. */
static void offer(uint64_t execution, const struct nnb_fast_run *run) {
    struct nnb_slot *slot = run == NULL ? nnb_handle_lock(execution, NNB_EXECUTION)
                                        : nnb_handle_try_lock(execution, NNB_EXECUTION);
    if (slot != NULL) {
        slot->fast.offer = nnb_interpreter_gone() ? NULL : run;
        nnb_handle_unlock(slot);
    }
}

static void offer_sizes(uint64_t compilation, struct nnb_argument_sizes *sizes) {
    struct nnb_slot *slot = nnb_handle_lock(compilation, NNB_COMPILATION);
    if (slot != NULL) {
        slot->fast.sizes = nnb_interpreter_gone() ? NULL : sizes;
        nnb_handle_unlock(slot);
    }
}

static void offer_memory(uint64_t memory, uint64_t size) {
    struct nnb_slot *slot = nnb_handle_lock(memory, NNB_MEMORY);
    if (slot != NULL) {
        /* SYNC POINT Y: publishes only the number. */
        nnb_store_release_u64(&slot->fast.size, size);
        nnb_handle_unlock(slot);
    }
}

static void cache(uint64_t burst, struct nnb_cached_request *const *cached, uint32_t count) {
    struct nnb_slot *slot = nnb_handle_lock(burst, NNB_BURST);
    if (slot != NULL) {
        slot->fast.cached = cached;
        slot->fast.cached_count = nnb_interpreter_gone() ? 0 : count;
        nnb_handle_unlock(slot);
    }
}

static void end_burst(uint64_t burst) {
    struct nnb_slot *slot = nnb_handle_lock(burst, NNB_BURST);
    if (slot != NULL) {
        nnb_slot_withdraw(slot);
        nnb_handle_end_locked(slot, burst);
    }
}

static void withdraw(struct nnb_slot *slot) {
    nnb_slot_withdraw(slot);
    nnb_slot_drop_native(slot);
}

/* Called by the Python side when its interpreter ends, again and again until it returns 0. It clears each slot that is
 * not locked; a computation without the interpreter holds such a lock. Requests that are entered later are ignored. */
static uint32_t end(void) {
    /* SYNC POINT S: see in_child. TRUST: memory of this process. */
    if (nnb_load_acquire_u32(&gone) == FORKED) {
        return 0; /* threads that do not exist in the child may hold the locks */
    }
    /* SYNC POINT S: nnb_interpreter_enter counts a call that does not see this. */
    nnb_store_release_u32(&gone, FINALIZED);
    nnb_fence();
    /* SYNC POINT Z: a call that has left no longer uses the interpreter. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&inside) + nnb_handles_visit(withdraw);
}

struct nnb_exchange nnb_services = {
    .version = NNB_EXCHANGE_VERSION,
    .new_handle = new_handle,
    .offer = offer,
    .offer_sizes = offer_sizes,
    .offer_memory = offer_memory,
    .cache = cache,
    .end_burst = end_burst,
    .end = end,
};

static void say_why(const struct nnb_python *python, const char *what) {
    void *type;
    void *value;
    void *trace;
    python->error_fetch(&type, &value, &trace);
    void *text = value == NULL ? NULL : python->string_of(value);
    const char *message = text == NULL ? NULL : python->utf8_of(text, NULL);
    nnb_complain("%s: %s", what, message ? message : "no reason given");
    if (text != NULL) {
        python->let_go(text);
    }
}

/* Passes the exchange to the Python side; the interpreter lock is held. */
static bool connect_to(const struct nnb_python *python, bool ours) {
    void *module = python->import_module(ENTRY);
    if (module == NULL) {
        say_why(python, "cannot import " ENTRY);
        return false;
    }
    void *done = python->call_method(module, "start", "Ki", (unsigned long long)(uintptr_t)&nnb_services, ours);
    python->let_go(module);
    if (done == NULL) {
        say_why(python, "cannot start " ENTRY);
        return false;
    }
    python->let_go(done);
    return true;
}

static bool new_enough(const char *version) {
    unsigned major;
    unsigned minor;
    return sscanf(version, "%u.%u", &major, &minor) == 2 && major == 3 && minor >= OLDEST_MINOR;
}

/* Uses the interpreter that this process already has. */
static bool use_running(const struct nnb_python *python) {
    if (!new_enough(python->get_version())) {
        nnb_complain("the Python of this process is %.16s, nnburst needs 3.%d", python->get_version(),
                     OLDEST_MINOR);
        return false;
    }
    int held = python->ensure();
    bool connected = connect_to(python, false);
    python->release(held);
    return connected;
}

/* Opens an environment's libpython for all threads of the process; NULL with one line on stderr. */
static void *open_libpython(const struct nnb_environment *environment) {
    static const char *const folders[] = {"/../lib/", "/../lib64/", "/../lib/x86_64-linux-gnu/",
                                          "/../lib/aarch64-linux-gnu/", "/"};
    char name[64];
    (void)snprintf(name, sizeof name, "libpython%s.so.1.0", environment->version);
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int length = snprintf(path, sizeof path, "%s%s%s", environment->home, folders[i], name);
        if (length > 0 && (size_t)length < sizeof path && eaccess(path, R_OK) == 0) {
            void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
            if (library != NULL) {
                return library;
            }
        }
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        nnb_complain("%s: there is no %s for %s: install the package libpython%s (Debian, Ubuntu) or python3-libs (Fedora), "
                     "or a Python that was built with --enable-shared",
                     environment->said_by, name, environment->program, environment->version);
    }
    return library;
}

static bool start_own(void) {
    struct nnb_environment environment;
    struct nnb_python python;
    if (!nnb_environment_find(&environment)) {
        nnb_complain("%s", environment.problem);
        return false;
    }
    if (!new_enough(environment.version)) {
        nnb_complain("%s is Python %s, nnburst needs 3.%d", environment.program, environment.version,
                     OLDEST_MINOR);
        return false;
    }
    void *library = open_libpython(&environment);
    if (library == NULL || !nnb_python_look_up(&python, library)) {
        return false;
    }
    if (!nnb_python_initialize(&python, environment.program)) {
        return false;
    }
    bool connected = connect_to(&python, true);
    (void)python.save_thread(); /* the next thread that calls takes the lock */
    return connected;
}

static void in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread that does not exist in the child may hold
                                                        * it */
    /* SYNC POINT S: this process has a single thread now. TRUST: memory of this process. */
    if (nnb_load_acquire_u32(&state) != UNTRIED) {
        /* SYNC POINT S: see above. */
        nnb_store_release_u32(&gone, FORKED);
    }
}

__attribute__((constructor)) static void mind_forks(void) { (void)pthread_atfork(NULL, NULL, in_child); }

bool nnb_interpreter_gone(void) {
    /* SYNC POINT S: see in_child and end. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&gone) != NOT_GONE;
}

static bool start(void) {
    struct nnb_python python;
    int (*running)(void);
    void *found = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    *(void **)&running = found;
    return found != NULL && running() ? nnb_python_look_up(&python, RTLD_DEFAULT) && use_running(&python)
                                      : start_own();
}

static bool is_started(void) {
    /* SYNC POINT T: nnb_services is complete. TRUST: memory of this process. */
    uint32_t now = nnb_load_acquire_u32(&state);
    if (now == STARTED || now == REFUSED) {
        return now == STARTED;
    }
    pthread_mutex_lock(&lock);
    now = nnb_load_relaxed_u32(&state); /* TRUST: memory of this process */
    if (now == UNTRIED) {
        /* SYNC POINT S: a child that is forked during the start has an incomplete interpreter. */
        nnb_store_release_u32(&state, STARTING);
        now = start() ? STARTED : REFUSED;
        /* SYNC POINT T: the Python side's functions are visible to a thread that sees the state. */
        nnb_store_release_u32(&state, now);
    }
    pthread_mutex_unlock(&lock);
    return now == STARTED;
}

static void say_that_it_is_gone(void) {
    /* SYNC POINT S: see in_child. TRUST: memory of this process. */
    if (nnb_load_acquire_u32(&gone) == FORKED) {
        nnb_log("this process was forked from one that used NNAPI: it cannot use it itself");
    } else if (nnb_fetch_or_u32(&explained, 1) == 0) { /* SYNC POINT S: publishes only that the message was
                                                        * written */
        nnb_complain("the Python of this process has ended: NNAPI can no longer be used in it");
    }
}

bool nnb_interpreter_enter(bool frees) {
    if (!nnb_interpreter_gone() && !is_started()) {
        return false;
    }
    (void)nnb_count_u32(&inside, 1);
    nnb_fence(); /* either `end` sees this call, or this call that the interpreter is gone */
    if (nnb_interpreter_gone()) {
        nnb_interpreter_leave();
        if (!frees) {
            say_that_it_is_gone();
        }
        return false;
    }
    return true;
}

void nnb_interpreter_leave(void) {
    /* SYNC POINT Z: see end. */
    nnb_fence();
    (void)nnb_count_u32(&inside, UINT32_MAX); /* one less */
}
