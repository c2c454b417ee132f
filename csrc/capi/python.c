#include "python.h"

#include <dlfcn.h>
#include <string.h>

#include "log.h"

struct wanted {
    const char *name;
    size_t offset;
};

#define WANTED(name, field) {name, offsetof(struct nnb_python, field)}

static const struct wanted functions[] = {
    WANTED("Py_IsInitialized", is_initialized),
    WANTED("Py_GetVersion", get_version),
    WANTED("PyPreConfig_InitIsolatedConfig", preconfig_init),
    WANTED("Py_PreInitialize", preinitialize),
    WANTED("Py_DecodeLocale", decode),
    WANTED("Py_SetProgramName", set_program_name),
    WANTED("PyConfig_InitIsolatedConfig", config_init),
    WANTED("Py_InitializeFromConfig", initialize),
    WANTED("PyConfig_Clear", config_clear),
    WANTED("PyEval_SaveThread", save_thread),
    WANTED("PyGILState_Ensure", ensure),
    WANTED("PyGILState_Release", release),
    WANTED("PyImport_ImportModule", import_module),
    WANTED("PyObject_CallMethod", call_method),
    WANTED("PyErr_Fetch", error_fetch),
    WANTED("PyObject_Str", string_of),
    WANTED("PyUnicode_AsUTF8AndSize", utf8_of),
    WANTED("PyLong_AsLong", as_long),
    WANTED("Py_DecRef", let_go),
};

bool nnb_python_look_up(struct nnb_python *python, void *library) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (found == NULL) {
            nnb_complain("this libpython has no %s", functions[i].name);
            return false;
        }
        memcpy((char *)python + functions[i].offset, &found, sizeof found);
    }
    return true;
}

static bool went_well(struct nnb_python_status status) {
    if (status.type != 0) {
        nnb_complain("Python does not start: %s", status.message ? status.message : "it wants to exit");
    }
    return status.type == 0;
}

bool nnb_python_initialize(const struct nnb_python *python, const char *program) {
    struct nnb_python_preconfig before;
    python->preconfig_init(&before);
    before.utf8_mode = 1; /* independent of the program's locale, which does not change */
    if (!went_well(python->preinitialize(&before))) {
        return false;
    }
    wchar_t *name = python->decode(program, NULL);
    if (name == NULL) {
        nnb_complain("Python does not start: cannot decode %s", program);
        return false;
    }
    python->set_program_name(name); /* never freed, since the interpreter may read it until the process ends
                                     * */
    struct nnb_python_config config;
    python->config_init(&config);
    bool started = went_well(python->initialize(&config));
    python->config_clear(&config);
    return started;
}
