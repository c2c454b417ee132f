#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The used part of Landlock's interface, since <linux/landlock.h> of old systems lacks parts of it. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

struct ruleset {
    uint64_t files;
    uint64_t network; /* ABI 4 */
    uint64_t scoped;  /* ABI 6 */
};

struct path_rule {
    uint64_t allowed;
    int32_t path;
} __attribute__((packed));

enum {
    LANDLOCK_VERSION = 1,    /* flag of create_ruleset */
    LANDLOCK_BENEATH = 1,    /* kind of rule */
    FILE_EXECUTE = 1 << 0,
    FILE_WRITE = 1 << 1,
    FILE_READ = 1 << 2,
    DIRECTORY_READ = 1 << 3,
    DIRECTORY_REMOVE = 1 << 4,
    FILE_REMOVE = 1 << 5,
    FILE_MAKE = 1 << 8,
    ALL_OF_ABI_1 = (1 << 13) - 1,
    FILE_REFER = 1 << 13,    /* ABI 2 */
    FILE_TRUNCATE = 1 << 14, /* ABI 3 */
    DEVICE_IOCTL = 1 << 15,  /* ABI 5 */
    TCP_BOTH = 3,
    SCOPE_BOTH = 3, /* abstract sockets and signals of processes outside */
};

static int allow(int rules, const char *path, uint64_t what) {
    struct path_rule rule = {.allowed = what, .path = open(path, O_PATH | O_CLOEXEC)};
    if (rule.path < 0) {
        return -errno;
    }
    long failed = syscall(SYS_landlock_add_rule, rules, LANDLOCK_BENEATH, &rule, 0);
    int error = failed == 0 ? 0 : -errno;
    (void)close(rule.path);
    return error;
}

static int enter_landlock(const char *writable, const char *const *nodes) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
    if (abi < 1) {
        return 0; /* the kernel does not have it, or it is switched off */
    }
    struct ruleset set = {.files = ALL_OF_ABI_1 & ~(uint64_t)(FILE_READ | DIRECTORY_READ)};
    size_t size = offsetof(struct ruleset, network);
    if (abi >= 2) {
        set.files |= FILE_REFER;
    }
    if (abi >= 3) {
        set.files |= FILE_TRUNCATE;
    }
    if (abi >= 4) {
        set.network = TCP_BOTH;
        size = offsetof(struct ruleset, scoped);
    }
    if (abi >= 5) {
        set.files |= DEVICE_IOCTL; /* of nodes that are opened from here on */
    }
    if (abi >= 6) {
        set.scoped = SCOPE_BOTH;
        size = sizeof set;
    }
    int rules = (int)syscall(SYS_landlock_create_ruleset, &set, size, 0);
    if (rules < 0) {
        return -errno;
    }
    const uint64_t change = FILE_WRITE | FILE_TRUNCATE;
    const uint64_t make = change | FILE_REMOVE | FILE_MAKE | FILE_REFER;
    int error = allow(rules, "/dev/null", set.files & change); /* where engines' chatter goes */
    if (error == 0 && writable != NULL) {
        error = allow(rules, writable, set.files & make);
    }
    for (; error == 0 && *nodes != NULL; nodes++) {
        error = allow(rules, *nodes, set.files & (change | DEVICE_IOCTL));
    }
    if (error == 0 && syscall(SYS_landlock_restrict_self, rules, 0) != 0) {
        error = -errno;
    }
    (void)close(rules);
    return error == 0 ? NNB_SANDBOX_LANDLOCK : error;
}

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Calls of all architectures since Linux 5.1 have the same numbers; headers of old systems lack some. */
enum {
    NR_pidfd_send_signal = 424,
    NR_io_uring_setup = 425,
    NR_open_tree = 428,
    NR_move_mount = 429,
    NR_fsopen = 430,
    NR_fsconfig = 431,
    NR_fsmount = 432,
    NR_fspick = 433,
    NR_clone3 = 435,
    NR_pidfd_getfd = 438,
    NR_process_madvise = 440,
    NR_mount_setattr = 442,
};

/* The system calls that a worker does not need. All others stay allowed, since the needs of executors cannot
 * be listed: threads, memory, clocks, reading files. */
static const uint32_t refused[] = {
    SYS_execve,       SYS_execveat,        SYS_ptrace,        SYS_process_vm_readv,
    SYS_mount,        SYS_umount2,         SYS_pivot_root,    SYS_process_vm_writev,
    SYS_chroot,       SYS_setns,           SYS_unshare,       SYS_open_by_handle_at,
    SYS_bpf,          SYS_perf_event_open, SYS_userfaultfd,   SYS_finit_module,
    SYS_add_key,      SYS_request_key,     SYS_keyctl,        SYS_init_module,
    SYS_delete_module, SYS_kexec_load,     SYS_reboot,        SYS_swapon,
    SYS_swapoff,      SYS_settimeofday,    SYS_clock_settime, SYS_sethostname,
    SYS_acct,         SYS_quotactl,        SYS_kcmp,
    /* Other services of the user also listen on local sockets. A worker has its sockets already, or makes
     * pairs. */
    SYS_socket,       SYS_connect,
    SYS_tkill,        SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    NR_pidfd_send_signal, NR_pidfd_getfd,  NR_io_uring_setup, NR_process_madvise,
    NR_open_tree,     NR_move_mount,       NR_fsopen,         NR_fsconfig,
    NR_fsmount,       NR_fspick,           NR_mount_setattr,
};

enum {
    REFUSED = sizeof refused / sizeof refused[0],
    PROGRAM = REFUSED + 18,
    X32 = 0x40000000,
    /* CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET */
    NEW_NAMESPACES = 0x7E020000,
};
_Static_assert(PROGRAM < 256, "a jump reaches 255 steps");

static int enter_seccomp(void) {
#ifdef ARCHITECTURE
    const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    struct sock_filter program[PROGRAM];
    unsigned short end = 0;
    program[end++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                  offsetof(struct seccomp_data, arch));
    program[end++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    program[end++] = refuse; /* calls of another architecture have other numbers */
    program[end++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    unsigned char other = (unsigned char)(PROGRAM - 1 - end - 1); /* x32 has numbers of its own */
    program[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, other, 0);
    for (unsigned i = 0; i < REFUSED; i++) {
        unsigned char jump = (unsigned char)(PROGRAM - 1 - end - 1);
        program[end++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], jump, 0);
    }
    const struct sock_filter look = BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, args)); /* first one's low half */
    /* Its flags lie in memory that no filter can read; libraries use clone if it is missing. */
    program[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NR_clone3, 0, 1);
    program[end++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    /* Allows threads and processes, but no new namespaces, in which a process has all rights. */
    program[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    program[end++] = look;
    program[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1);
    program[end++] = refuse;
    program[end++] = allow;
    /* Allows signals only to the process itself, which abort() uses. Landlock also enforces this from ABI 6
     * on. */
    program[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 1, 0);
    program[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 2);
    program[end++] = look;
    program[end++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 0, 1);
    program[end++] = allow;
    program[end++] = refuse;
    struct sock_fprog filter = {.len = end, .filter = program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) {
        return NNB_SANDBOX_SECCOMP;
    }
    return errno == EINVAL || errno == ENOSYS ? 0 : -errno;
#else
    return 0;
#endif
}

int nnb_sandbox_enter(const char *writable, const char *const *nodes) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return -errno;
    }
    int landlock = enter_landlock(writable, nodes);
    if (landlock < 0) {
        return landlock;
    }
    int seccomp = enter_seccomp(); /* last: it may take away what the steps before need */
    if (seccomp < 0) {
        return seccomp;
    }
    return NNB_SANDBOX_NO_NEW_PRIVILEGES | landlock | seccomp;
}
