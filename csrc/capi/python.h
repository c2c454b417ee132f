/* Looks up the few functions of libpython that the library calls, at run time; the library does not link
 * libpython. 
 * All but those that start an interpreter are in the limited API. */
#ifndef NNB_CAPI_PYTHON_H
#define NNB_CAPI_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/* PyStatus: the result of starting. */
struct nnb_python_status {
    int type; /* 0 is success */
    const char *function;
    const char *message;
    int exit_code;
};

/* PyPreConfig of Python 3.11 to 3.13 (the same layout), with room for more fields. */
struct nnb_python_preconfig {
    int config_init;
    int parse_argv;
    int isolated;
    int use_environment;
    int configure_locale;
    int coerce_c_locale;
    int coerce_c_locale_warn;
    int utf8_mode;
    int room[56];
};

/* PyConfig, whose layout differs between versions, so its fields are not declared. */
struct nnb_python_config {
    _Alignas(16) char room[4096];
};

struct nnb_python {
    int (*is_initialized)(void);
    const char *(*get_version)(void);
    void (*preconfig_init)(struct nnb_python_preconfig *);
    struct nnb_python_status (*preinitialize)(const struct nnb_python_preconfig *);
    wchar_t *(*decode)(const char *, size_t *);
    void (*set_program_name)(const wchar_t *);
    void (*config_init)(struct nnb_python_config *);
    struct nnb_python_status (*initialize)(const struct nnb_python_config *);
    void (*config_clear)(struct nnb_python_config *);
    void *(*save_thread)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*import_module)(const char *);
    void *(*call_method)(void *, const char *, const char *, ...);
    void (*error_fetch)(void **, void **, void **);
    void *(*string_of)(void *);
    const char *(*utf8_of)(void *, void *);
    long (*as_long)(void *);
    void (*let_go)(void *);
};

/* Looks the functions up in `library` (from dlopen, or RTLD_DEFAULT); false with one line on stderr. */
bool nnb_python_look_up(struct nnb_python *python, void *library);

/* Starts an interpreter that does not change signals, locale and argv, and takes its packages from the
 * environment of `program`. The calling thread then holds the interpreter lock. False with one line on stderr
 * after a failure. */
bool nnb_python_initialize(const struct nnb_python *python, const char *program);

#endif
