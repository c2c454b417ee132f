#include "environment.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Notes why no environment is usable, and returns false. */
__attribute__((format(printf, 2, 3))) static bool refuse(struct nnb_environment *environment,
                                                         const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(environment->problem, sizeof environment->problem, format, arguments);
    va_end(arguments);
    return false;
}

/* Joins up to three parts; false if they do not fit. */
static bool join(char *to, const char *first, const char *second, const char *third) {
    int length = snprintf(to, PATH_MAX, "%s%s%s", first, second, third);
    return length >= 0 && length < PATH_MAX;
}

/* A program runs with the effective user's rights, which `access` does not check. */
static bool is_program(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && eaccess(path, X_OK) == 0;
}

static bool is_folder(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

static void strip_last(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

/* Finds the folder of this library, with links resolved, and the file beside it that may name an interpreter:
 * libX.python for libX.so. */
static bool find_library(char *folder, char *beside) {
    Dl_info info;
    static const char here = 0;
    char stem[PATH_MAX];
    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL || realpath(info.dli_fname, folder) == NULL ||
        !join(stem, folder, "", "")) {
        return false;
    }
    strip_last(folder);
    char *end = strstr(stem + strlen(folder), ".so");
    if (end != NULL) {
        *end = '\0';
    }
    return join(beside, stem, ".python", "");
}

static bool first_line(const char *path, char *line) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool found = fgets(line, PATH_MAX, file) != NULL;
    (void)fclose(file);
    if (found) {
        line[strcspn(line, "\r\n")] = '\0';
    }
    return found && line[0] != '\0';
}

/* The value of a key in a pyvenv.cfg: `key = value`. */
static bool setting(const char *path, const char *key, char *value) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    char line[PATH_MAX];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        char *equals = strchr(line, '=');
        size_t length = strlen(key);
        if (equals == NULL || strncmp(line, key, length) != 0 ||
            (line[length] != ' ' && line[length] != '=')) {
            continue;
        }
        equals += 1 + strspn(equals + 1, " \t");
        equals[strcspn(equals, "\r\n")] = '\0';
        found = join(value, equals, "", "");
    }
    (void)fclose(file);
    return found;
}

/* Shortens "3.11.7" to "3.11". */
static bool keep_minor(char *to, size_t room, const char *version) {
    unsigned major;
    unsigned minor;
    if (sscanf(version, "%u.%u", &major, &minor) != 2) {
        return false;
    }
    int length = snprintf(to, room, "%u.%u", major, minor);
    return length > 0 && (size_t)length < room;
}

/* Finds the home of an environment's interpreter: pyvenv.cfg names the interpreter that the environment was
 * made from; without this file the home is the folder of the interpreter itself. */
static bool look_at(struct nnb_environment *environment) {
    char folder[PATH_MAX];
    char path[PATH_MAX];
    char value[PATH_MAX];
    if (!join(folder, environment->program, "", "")) {
        return false;
    }
    strip_last(folder);
    if (join(path, folder, "/../pyvenv.cfg", "") && setting(path, "home", environment->home) &&
        (setting(path, "version", value) || setting(path, "version_info", value))) {
        return keep_minor(environment->version, sizeof environment->version, value);
    }
    char real[PATH_MAX];
    if (realpath(environment->program, real) == NULL) {
        return false;
    }
    const char *name = strrchr(real, '/');
    const char *digits = name == NULL ? NULL : strpbrk(name, "0123456789");
    if (digits == NULL || !keep_minor(environment->version, sizeof environment->version, digits)) {
        return false;
    }
    strip_last(real);
    return join(environment->home, real, "", "");
}

/* Takes `path`, an interpreter or the folder of an environment; `said_by` names its source in messages. */
static bool choose(struct nnb_environment *environment, const char *said_by, const char *path) {
    (void)snprintf(environment->said_by, sizeof environment->said_by, "%s", said_by);
    bool fits = is_folder(path) ? join(environment->program, path, "/bin/python3", "")
                                : join(environment->program, path, "", "");
    if (!fits || !is_program(environment->program)) {
        return refuse(environment, "%s names no Python interpreter: %s", said_by, path);
    }
    if (!look_at(environment)) {
        return refuse(environment, "%s: cannot see which version of Python %s is", said_by,
                      environment->program);
    }
    return true;
}

/* Finds ENV if the library lies in ENV/lib/python3.11/site-packages/nnburst/capi/lib. */
static bool installed_in(const char *folder, char *environment) {
    const char *packages = strstr(folder, "/site-packages/");
    if (packages == NULL || (size_t)(packages - folder) >= PATH_MAX) {
        return false;
    }
    memcpy(environment, folder, (size_t)(packages - folder));
    environment[packages - folder] = '\0';
    strip_last(environment); /* python3.11 */
    strip_last(environment); /* lib */
    return environment[0] != '\0';
}

/* A setuid program must not trust its environment, which its caller made: secure_getenv. */
bool nnb_environment_find(struct nnb_environment *environment) {
    const char *named = secure_getenv("NNBURST_PYTHON");
    if (named != NULL && named[0] != '\0') {
        return choose(environment, "NNBURST_PYTHON", named);
    }
    char folder[PATH_MAX];
    char path[PATH_MAX] = "";
    char line[PATH_MAX];
    bool have_folder = find_library(folder, path);
    if (have_folder && first_line(path, line)) {
        char said_by[PATH_MAX + 8];
        (void)snprintf(said_by, sizeof said_by, "%s", path);
        return choose(environment, said_by, line);
    }
    named = secure_getenv("VIRTUAL_ENV");
    if (named != NULL && named[0] != '\0') {
        return choose(environment, "VIRTUAL_ENV", named);
    }
    char beside[PATH_MAX];
    (void)join(beside, path[0] == '\0' ? "" : strrchr(path, '/') + 1, "", "");
    if (have_folder && installed_in(folder, path)) {
        return choose(environment, "the environment of the library", path);
    }
    return refuse(environment,
                  "no Python environment with nnburst: name its interpreter in NNBURST_PYTHON, which a setuid"
                  " program ignores, or in the file %s beside the library",
                  beside);
}
