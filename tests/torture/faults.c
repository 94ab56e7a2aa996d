// Loaded with LD_PRELOAD: one system call on files below a folder fails, is cut short, or is the last of the process.
//
// fault_arm(folder, at, kind, which) starts counting the calls there that change files (1), those that read them (2) or
// both (3); the call number `at`, from 0, meets the fault. fault_count() returns how many there were since. Syncs are
// counted and not made: a killed process loses nothing of the page cache.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum Kind { COUNT = 0, KILL = -1, SHORT = -2, FULL = -3 };  // or an error number, that one call returns

static char root[4096];
static long fault_at, calls;
static int fault, armed;  // armed: for calls that CHANGE files, that LOOK at them, or both
enum Which { CHANGE = 1, LOOK = 2 };

void fault_arm(const char* folder, long at, int kind, int which) {
    strncpy(root, folder, sizeof root - 1);
    fault_at = at, calls = 0, fault = kind, armed = which;
}

void fault_disarm(void) { armed = 0; }

long fault_count(void) { return calls; }

static int below(const char* path) { return path != NULL && strncmp(path, root, strlen(root)) == 0; }

static int below_fd(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}

static int changes(const char* path) { return (armed & CHANGE) && below(path); }
static int changes_fd(int fd) { return (armed & CHANGE) && below_fd(fd); }
static int reads(const char* path) { return (armed & LOOK) && below(path); }
static int reads_fd(int fd) { return (armed & LOOK) && below_fd(fd); }

// Counts a call that takes space or not; returns whether it must fail, with errno set.
static int fails(int takes_space) {
    const long number = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    if (fault == FULL && number >= fault_at && takes_space) return errno = ENOSPC, 1;
    if (number != fault_at) return 0;
    if (fault == KILL) kill(getpid(), SIGKILL);
    if (fault > 0) return errno = fault, 1;
    return 0;
}

// How many bytes of the next call to transfer: half where it is cut short, or killed in the middle.
static size_t some_of(size_t bytes) {
    return calls == fault_at && bytes > 1 && (fault == SHORT || fault == KILL) ? bytes / 2 : bytes;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define COMMA ,

#define READ(name, ...)                                                    \
    do {                                                                   \
        if (!reads_fd(fd)) return REAL(name)(fd, data, bytes __VA_ARGS__); \
        const size_t some = some_of(bytes);                                \
        return fails(0) ? -1 : REAL(name)(fd, data, some __VA_ARGS__);     \
    } while (0)

ssize_t read(int fd, void* data, size_t bytes) { READ(read); }
ssize_t pread(int fd, void* data, size_t bytes, off_t at) { READ(pread, COMMA at); }
ssize_t pread64(int fd, void* data, size_t bytes, off64_t at) { READ(pread64, COMMA at); }

#define WRITE(name, ...)                                                     \
    do {                                                                     \
        if (!changes_fd(fd)) return REAL(name)(fd, data, bytes __VA_ARGS__); \
        const size_t some = some_of(bytes);                                  \
        if (fault == KILL && some < bytes) {                                 \
            const ssize_t written = REAL(name)(fd, data, some __VA_ARGS__);  \
            (void)written;                                                   \
        }                                                                    \
        return fails(1) ? -1 : REAL(name)(fd, data, some __VA_ARGS__);       \
    } while (0)

ssize_t write(int fd, const void* data, size_t bytes) { WRITE(write); }
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) { WRITE(pwrite, COMMA at); }
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) { WRITE(pwrite64, COMMA at); }

#define VECTOR(name, ...)                                                                 \
    do {                                                                                  \
        if (changes_fd(fd) && fails(1)) return -1;                                          \
        return REAL(name)(fd, parts, count __VA_ARGS__);                                  \
    } while (0)

ssize_t writev(int fd, const struct iovec* parts, int count) { VECTOR(writev); }
ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t at) { VECTOR(pwritev, COMMA at); }
ssize_t pwritev64(int fd, const struct iovec* parts, int count, off64_t at) { VECTOR(pwritev64, COMMA at); }

int fsync(int fd) { return changes_fd(fd) ? -fails(0) : 0; }
int fdatasync(int fd) { return changes_fd(fd) ? -fails(0) : 0; }
int ftruncate(int fd, off_t size) { return changes_fd(fd) && fails(1) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return changes_fd(fd) && fails(1) ? -1 : REAL(ftruncate64)(fd, size); }
int unlink(const char* path) { return changes(path) && fails(0) ? -1 : REAL(unlink)(path); }
int mkdir(const char* path, mode_t mode) { return changes(path) && fails(1) ? -1 : REAL(mkdir)(path, mode); }
int link(const char* from, const char* to) { return changes(from) && fails(1) ? -1 : REAL(link)(from, to); }
int rename(const char* from, const char* to) { return changes(from) && fails(0) ? -1 : REAL(rename)(from, to); }

#define OPEN(name)                                                                          \
    do {                                                                                    \
        va_list rest;                                                                       \
        va_start(rest, flags);                                                              \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;       \
        va_end(rest);                                                                       \
        if ((flags & O_ACCMODE) == O_RDONLY ? reads(path) && fails(0) : changes(path) && fails(1)) return -1; \
        return REAL(name)(path, flags, mode);                                               \
    } while (0)

int open(const char* path, int flags, ...) { OPEN(open); }
int open64(const char* path, int flags, ...) { OPEN(open64); }

// A descriptor is closed whatever its last writes came to.
int close(int fd) {
    const int meets = (armed & CHANGE) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && below_fd(fd) && fails(0);
    const int error = errno, closed = REAL(close)(fd);
    return meets ? errno = error, -1 : closed;
}

int rmdir(const char* path) { return changes(path) && fails(0) ? -1 : REAL(rmdir)(path); }
int chmod(const char* path, mode_t mode) { return changes(path) && fails(0) ? -1 : REAL(chmod)(path, mode); }
int flock(int fd, int how) { return changes_fd(fd) && fails(0) ? -1 : REAL(flock)(fd, how); }
int stat(const char* path, struct stat* found) { return reads(path) && fails(0) ? -1 : REAL(stat)(path, found); }
int stat64(const char* path, struct stat64* found) { return reads(path) && fails(0) ? -1 : REAL(stat64)(path, found); }
int lstat(const char* path, struct stat* found) { return reads(path) && fails(0) ? -1 : REAL(lstat)(path, found); }
int lstat64(const char* path, struct stat64* found) { return reads(path) && fails(0) ? -1 : REAL(lstat64)(path, found); }
int fstat(int fd, struct stat* found) { return reads_fd(fd) && fails(0) ? -1 : REAL(fstat)(fd, found); }
int fstat64(int fd, struct stat64* found) { return reads_fd(fd) && fails(0) ? -1 : REAL(fstat64)(fd, found); }
int access(const char* path, int how) { return reads(path) && fails(0) ? -1 : REAL(access)(path, how); }
DIR* opendir(const char* path) { return reads(path) && fails(0) ? NULL : REAL(opendir)(path); }
struct dirent* readdir(DIR* folder) { return reads_fd(dirfd(folder)) && fails(0) ? NULL : REAL(readdir)(folder); }
struct dirent64* readdir64(DIR* folder) { return reads_fd(dirfd(folder)) && fails(0) ? NULL : REAL(readdir64)(folder); }

#define MAP(name, offset)                                                                      \
    void* name(void* at, size_t bytes, int how, int flags, int fd, offset start) {             \
        if (!(flags & MAP_ANONYMOUS) && reads_fd(fd) && fails(0)) return MAP_FAILED;           \
        return REAL(name)(at, bytes, how, flags, fd, start);                                   \
    }

MAP(mmap, off_t)
MAP(mmap64, off64_t)

#define CONTROL(name)                                                                          \
    int name(int fd, int command, ...) {                                                       \
        va_list rest;                                                                          \
        va_start(rest, command);                                                               \
        void* value = va_arg(rest, void*);                                                     \
        va_end(rest);                                                                          \
        const int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK; \
        if (locks && changes_fd(fd) && fails(0)) return -1;                                    \
        return REAL(name)(fd, command, value);                                                 \
    }

CONTROL(fcntl)
CONTROL(fcntl64)
