#include "client/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <nnburst.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/failure.h"
#include "pool_map.h"
#include "received_fd.h"

/* Wheels run on a C library that is older than these. */
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 0x0001
#define F_SEAL_SHRINK 0x0002
#define F_SEAL_GROW 0x0004
#define F_SEAL_WRITE 0x0008
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001u
#define MFD_ALLOW_SEALING 0x0002u
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int cannot(struct nnb_region *region, int code, const char *what) {
    int error = errno;
    nnb_region_close(region, true);
    return nnb_fail(code, "%s: %s", what, strerror(error));
}

static int create(struct nnb_region *region, uint64_t size, const char *name, int seals) {
    *region = (struct nnb_region){.fd = -1, .size = size};
    if (size == 0 || size > INT64_MAX) {
        return nnb_fail(NNBURST_BAD_DATA, "size: %llu bytes, expected 1 to 2**63 - 1",
                        (unsigned long long)size);
    }
    region->fd = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (region->fd < 0) {
        return cannot(region, NNBURST_RESOURCE_EXHAUSTED, "shared memory cannot be made");
    }
    if (ftruncate(region->fd, (off_t)size) != 0) {
        return cannot(region, NNBURST_OUT_OF_MEMORY, "shared memory cannot be made");
    }
    region->data = nnb_pool_map(region->fd, size, 1);
    if (region->data == NULL) {
        return cannot(region, NNBURST_OUT_OF_MEMORY, "shared memory cannot be mapped");
    }
    return fcntl(region->fd, F_ADD_SEALS, seals) != 0
               ? cannot(region, NNBURST_OUT_OF_MEMORY, "shared memory cannot be sealed")
               : NNBURST_NO_ERROR;
}

int nnb_region_create(struct nnb_region *region, uint64_t size, const char *name) {
    return create(region, size, name, SIZE_SEALS);
}

int nnb_region_create_protected(struct nnb_region *region, uint64_t size, const char *name) {
    return create(region, size, name, SIZE_SEALS | F_SEAL_FUTURE_WRITE);
}

bool nnb_is_sealed(int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SIZE_SEALS) == SIZE_SEALS;
}

bool nnb_may_write(int fd) {
    return (fcntl(fd, F_GET_SEALS) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0 &&
           (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

int nnb_region_adopt(struct nnb_region *region, int fd, bool writable) {
    *region = (struct nnb_region){.fd = fd};
    /* TRUST: only memfds can have the seals of the size, which make fstat's answer final. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0) {
        return cannot(region, NNBURST_BAD_DATA, "fd is not a memfd");
    }
    struct stat status;
    struct statvfs volume;
    if (fstat(fd, &status) != 0 || fstatvfs(fd, &volume) != 0) {
        return cannot(region, NNBURST_BAD_DATA, "fd cannot be looked at");
    }
    bool is_huge = volume.f_bsize != (unsigned long)sysconf(_SC_PAGESIZE);
    if ((seals & SIZE_SEALS) != SIZE_SEALS || status.st_size <= 0 || is_huge) {
        nnb_region_close(region, true);
        return nnb_fail(NNBURST_BAD_DATA,
                        "fd: expected a memfd that is not empty, of ordinary pages, with the seals"
                        " SHRINK, GROW and SEAL");
    }
    region->size = (uint64_t)status.st_size;
    region->data = nnb_pool_map(fd, region->size, writable);
    return region->data == NULL ? cannot(region, NNBURST_OUT_OF_MEMORY, "shared memory cannot be mapped")
                                : NNBURST_NO_ERROR;
}

void nnb_region_close(struct nnb_region *region, bool is_mapped_here) {
    if (is_mapped_here) {
        nnb_pool_unmap(region->data, region->size);
    }
    if (region->fd >= 0) {
        nnb_close_received(region->fd); /* one that was refused is of any kind */
    }
    *region = (struct nnb_region){.fd = -1};
}
