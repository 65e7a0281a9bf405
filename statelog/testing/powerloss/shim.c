/* A library for LD_PRELOAD. It logs all changes of a process to the files of one directory, in order and with their
 * data, and makes chosen calls fail. From the log, `disk.py` computes what a disk may contain after a power cut.
 *
 * Trust: test code for our own processes. It is never linked into the package's extension.
 *
 * Invariants:
 *   - Calls that change a file or a name are made one at a time, under the mutex of the log, so the log has the order
 *     of the calls. A flush is made without the mutex. Its beginning and its end are logged, and it covers what was
 *     logged before its beginning.
 *   - A change is logged as unfinished before the call, and its result is added after the call. So a kill between the
 *     two leaves a change that may have happened, but never a change that is missing in the log.
 *   - Files are identified by inode at each call, because descriptors are copied and inherited, and names change.
 *   - System calls are made directly, so nothing depends on which functions of libc call others.
 *
 * The log is a sparse file of the maximum size, created by the recording process and shared by all recorded processes.
 * `struct head` and `struct record` are its layout, which `shim.py` repeats.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if !defined(__linux__) || !defined(__LP64__)
#error "recording needs a 64-bit Linux"
#endif

#define EXPORT __attribute__((visibility("default")))
#define HEAD_SIZE 4096u
#define MAGIC 0x314d494853474c53u /* "SLGSHIM1" */
#define UNFINISHED INT64_MIN

/* Kinds of records. Each comment gives the meaning of `offset`, if it is used, and then the payload. */
enum kind {
    KIND_WRITE = 1,            /* offset in the file; data */
    KIND_FLUSH_BEGIN = 2,      /* fsync or fdatasync of a file; name */
    KIND_FLUSH_END = 3,        /* offset in the log of its KIND_FLUSH_BEGIN */
    KIND_WRITE_FLUSHED = 4,    /* an O_DSYNC write is on the disk; offset in the log of its KIND_WRITE */
    KIND_TRUNCATE = 5,         /* the new size as offset */
    KIND_CREATE = 6,           /* name */
    KIND_LINK = 7,             /* old name, NUL, new name */
    KIND_RENAME = 8,           /* old name, NUL, new name */
    KIND_UNLINK = 9,           /* name */
    KIND_DIRECTORY_BEGIN = 10, /* fsync of a directory; name */
    KIND_DIRECTORY_END = 11,   /* offset in the log of its KIND_DIRECTORY_BEGIN */
    KIND_MARK = 12,            /* data from the recorded process */
    KIND_MAPPED = 13,          /* a shared, writable mapping, whose writes are not logged; name */
    KIND_MSYNC = 14,
    KIND_OPEN = 15,            /* name */
    KIND_UNSEEN = 16,          /* a change that is not logged; name of the call */
};

/* Bits of `fault.kinds`: the calls that can fail. */
enum call {
    CALL_WRITE = 1 << 0,
    CALL_FLUSH = 1 << 1,
    CALL_TRUNCATE = 1 << 2,
    CALL_OPEN = 1 << 3,
    CALL_RENAME = 1 << 4, /* rename and link, which publish a file */
    CALL_UNLINK = 1 << 5,
    CALL_GROW = 1 << 6, /* a write or truncation beyond the end, which a full disk refuses */
};
#define CALLS 7

enum action {
    ACTION_NONE = 0,
    ACTION_FAIL = 1,         /* fail without effect */
    ACTION_FAIL_AFTER = 2,   /* take effect, and report a failure */
    ACTION_SHORT = 3,        /* write only half of the data; other calls fail without effect */
    ACTION_IGNORE = 4,       /* report success without effect */
    ACTION_KILL = 5,         /* SIGKILL before the call */
    ACTION_KILL_AFTER = 6,   /* SIGKILL after the call */
};

/* Flags of a write. */
#define SYNCHRONOUS 1 /* O_DSYNC or O_SYNC */
#define REFUSED 2     /* the write had an effect, but the call reported a failure */

struct fault {
    uint32_t kinds;
    uint32_t action;
    int32_t error;
    uint32_t persistent; /* strike again at every later call */
    int64_t countdown;   /* the fault strikes when this reaches 0 */
    uint64_t strikes;
};

struct head {
    uint64_t magic;
    uint64_t capacity;
    uint64_t length; /* the size of all records, which begin at HEAD_SIZE */
    uint32_t state;  /* 0 new, 1 being made ready, 2 ready */
    uint32_t paused; /* if set, nothing is logged and no call fails */
    uint32_t overflow;
    uint32_t reserved;
    struct fault fault;
    uint64_t calls[CALLS]; /* the number of calls so far, by bit number of `enum call` */
    pthread_mutex_t mutex;
};

struct record {
    uint32_t size; /* the size of the record and its payload, rounded up to a multiple of 8 */
    uint16_t kind;
    uint16_t flags;
    uint32_t process;
    uint32_t thread;
    uint64_t inode;
    uint64_t offset;
    int64_t result; /* the bytes written, 0, or minus errno; UNFINISHED until the call returns */
    uint64_t payload_size;
};

_Static_assert(sizeof(struct head) <= HEAD_SIZE, "the head must fit its page");
_Static_assert(sizeof(struct record) == 48, "shim.py knows the size");

static struct head *log_head;
static char directory[PATH_MAX];
static size_t directory_size;

/* --- the log ------------------------------------------------------------------------------------------------ */

static void die(const char *what)
{
    ssize_t ignored = syscall(SYS_write, 2, what, strlen(what));
    (void)ignored;
    abort();
}

static void lock(void)
{
    if (pthread_mutex_lock(&log_head->mutex) == EOWNERDEAD) {
        pthread_mutex_consistent(&log_head->mutex); /* The dead owner's last record is whole, perhaps UNFINISHED. */
    }
}

static void unlock(void)
{
    pthread_mutex_unlock(&log_head->mutex);
}

static void make_ready(void)
{
    uint32_t expected = 0;
    if (__atomic_compare_exchange_n(&log_head->state, &expected, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&log_head->mutex, &attributes);
        __atomic_store_n(&log_head->state, 2, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&log_head->state, __ATOMIC_ACQUIRE) != 2) {
        usleep(50);
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("STATELOG_SHIM_LOG");
    const char *watched = getenv("STATELOG_SHIM_DIRECTORY");
    if (path == NULL || watched == NULL) {
        return;
    }
    if (realpath(watched, directory) == NULL) {
        die("shim: no such directory to watch\n");
    }
    directory_size = strlen(directory);
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) != 0 || (size_t)status.st_size <= HEAD_SIZE) {
        die("shim: no log\n");
    }
    void *mapped = (void *)syscall(SYS_mmap, NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    syscall(SYS_close, descriptor);
    if (mapped == MAP_FAILED) {
        die("shim: the log cannot be mapped\n");
    }
    log_head = mapped;
    if (log_head->magic != MAGIC) {
        die("shim: not a log\n");
    }
    log_head->capacity = (uint64_t)status.st_size - HEAD_SIZE;
    make_ready();
}

static struct record *record_at(uint64_t at)
{
    return (struct record *)((char *)log_head + HEAD_SIZE + at);
}

static uint64_t size_of(const struct iovec *parts, int count)
{
    uint64_t size = 0;
    for (int i = 0; i < count; i++) {
        size += parts[i].iov_len;
    }
    return size;
}

/* Append a record and return its position, or UINT64_MAX if the log is full. The mutex is held. */
static uint64_t append(enum kind kind, uint16_t flags, uint64_t inode, uint64_t offset, int64_t result,
                       const struct iovec *parts, int count)
{
    uint64_t payload_size = size_of(parts, count);
    uint64_t size = (sizeof(struct record) + payload_size + 7) & ~UINT64_C(7);
    uint64_t at = log_head->length;
    if (log_head->overflow || size > log_head->capacity - at || size > UINT32_MAX) {
        log_head->overflow = 1;
        return UINT64_MAX;
    }
    struct record *made = record_at(at);
    made->size = (uint32_t)size;
    made->kind = (uint16_t)kind;
    made->flags = flags;
    made->process = (uint32_t)getpid();
    made->thread = (uint32_t)syscall(SYS_gettid);
    made->inode = inode;
    made->offset = offset;
    made->result = result;
    made->payload_size = payload_size;
    char *to = (char *)(made + 1);
    for (int i = 0; i < count; i++) {
        memcpy(to, parts[i].iov_base, parts[i].iov_len);
        to += parts[i].iov_len;
    }
    __atomic_store_n(&log_head->length, at + size, __ATOMIC_RELEASE);
    return at;
}

static uint64_t append_name(enum kind kind, uint64_t inode, int64_t result, const char *name)
{
    struct iovec part = {(void *)(uintptr_t)name, strlen(name)};
    return append(kind, 0, inode, 0, result, &part, 1);
}

/* Add the result of a call that was logged as unfinished. */
static void finish(uint64_t at, int64_t result)
{
    if (at != UINT64_MAX) {
        record_at(at)->result = result < 0 ? -(int64_t)errno : result;
    }
}

static int is_on(void)
{
    return log_head != NULL && !__atomic_load_n(&log_head->paused, __ATOMIC_RELAXED);
}

/* --- what is watched ---------------------------------------------------------------------------------------- */

/* Return `path` relative to the watched directory ("." for the directory), or NULL if it is elsewhere. */
static const char *below(const char *path)
{
    if (strncmp(path, directory, directory_size) != 0) {
        return NULL;
    }
    if (path[directory_size] == '\0') {
        return ".";
    }
    return path[directory_size] == '/' ? path + directory_size + 1 : NULL;
}

static const char *name_of_descriptor(int descriptor, char buffer[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, buffer, PATH_MAX - 1);
    if (size <= 0) {
        return NULL;
    }
    buffer[size] = '\0';
    return below(buffer);
}

/* Return the name and status of an open file or directory that is watched, or NULL. */
static const char *watched_descriptor(int descriptor, struct stat *status, char buffer[PATH_MAX])
{
    if (!is_on() || descriptor < 0) {
        return NULL;
    }
    int saved = errno;
    const char *name = NULL;
    if (fstat(descriptor, status) == 0 && (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode))) {
        name = name_of_descriptor(descriptor, buffer);
    }
    errno = saved;
    return name;
}

/* Return the name of an existing or future file at `path`, or NULL if it is not below the watched directory. */
static const char *watched_path(int at, const char *path, char buffer[PATH_MAX])
{
    if (!is_on() || path == NULL || *path == '\0' || strlen(path) >= PATH_MAX / 2) {
        return NULL;
    }
    int saved = errno;
    const char *slash = strrchr(path, '/');
    const char *last = slash == NULL ? path : slash + 1;
    char parent[PATH_MAX];
    if (slash == NULL) {
        strcpy(parent, ".");
    } else {
        size_t size = slash == path ? 1 : (size_t)(slash - path);
        memcpy(parent, path, size);
        parent[size] = '\0';
    }
    const char *name = NULL;
    int descriptor = (int)syscall(SYS_openat, at, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t size = readlink(link, buffer, PATH_MAX / 2);
        if (size > 0) {
            buffer[size] = '\0';
            if (below(buffer) != NULL) {
                if (*last != '\0' && strcmp(last, ".") != 0) {
                    strcat(buffer, "/");
                    strcat(buffer, last);
                }
                name = below(buffer);
            }
        }
        syscall(SYS_close, descriptor);
    }
    errno = saved;
    return name;
}

/* --- faults ------------------------------------------------------------------------------------------------- */

/* Count a call of one or two kinds, and return the action for it. The mutex is held. */
static enum action strike(uint32_t kinds)
{
    for (int i = 0; i < CALLS; i++) {
        log_head->calls[i] += (kinds >> i) & 1;
    }
    struct fault *fault = &log_head->fault;
    if (fault->action == ACTION_NONE || !(fault->kinds & kinds)) {
        return ACTION_NONE;
    }
    if (fault->countdown > 0) {
        fault->countdown--;
    } else if (!fault->persistent) {
        return ACTION_NONE;
    }
    if (fault->countdown > 0) {
        return ACTION_NONE;
    }
    fault->strikes++;
    if (fault->action == ACTION_KILL) {
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    if (fault->action == ACTION_SHORT && !(kinds & CALL_WRITE)) {
        return ACTION_FAIL;
    }
    return (enum action)fault->action;
}

static int64_t refuse(void)
{
    errno = log_head->fault.error;
    return -1;
}

/* Apply a fault that strikes after the call has taken effect. Return the result that the caller sees. */
static int64_t outcome(enum action action, int64_t result)
{
    if (action == ACTION_KILL_AFTER) {
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    return action == ACTION_FAIL_AFTER && result >= 0 ? refuse() : result;
}

/* --- writes ------------------------------------------------------------------------------------------------- */

#define AT_POSITION (-1)

static int64_t raw_write(int descriptor, const struct iovec *parts, int count, int64_t offset, int rwf)
{
    if (offset == AT_POSITION) {
        return syscall(SYS_writev, descriptor, parts, count);
    }
    return syscall(SYS_pwritev2, descriptor, parts, count, (unsigned long)offset, 0ul, rwf);
}

/* Halve the data to write, but keep at least one byte, and return the number of parts left. */
static int halve(struct iovec *parts, int count)
{
    uint64_t left = (size_of(parts, count) + 1) / 2;
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len >= left) {
            parts[i].iov_len = left;
            return i + 1;
        }
        left -= parts[i].iov_len;
    }
    return count;
}

static int64_t logged_write(int descriptor, const struct iovec *parts, int count, int64_t offset, int rwf)
{
    struct stat status;
    char buffer[PATH_MAX];
    struct iovec own[64];
    if (watched_descriptor(descriptor, &status, buffer) == NULL || !S_ISREG(status.st_mode) || count > 64) {
        return raw_write(descriptor, parts, count, offset, rwf);
    }
    memcpy(own, parts, sizeof(struct iovec) * (size_t)count);
    lock();
    int mode = (int)syscall(SYS_fcntl, descriptor, F_GETFL);
    fstat(descriptor, &status);
    uint64_t where = (uint64_t)offset;
    if (mode & O_APPEND) {
        where = (uint64_t)status.st_size;
    } else if (offset == AT_POSITION) {
        where = (uint64_t)lseek(descriptor, 0, SEEK_CUR);
    }
    int grows = where + size_of(own, count) > (uint64_t)status.st_size;
    enum action action = strike(CALL_WRITE | (grows ? (uint32_t)CALL_GROW : 0));
    if (action == ACTION_FAIL) {
        unlock();
        return refuse();
    }
    if (action == ACTION_IGNORE) {
        int64_t size = (int64_t)size_of(own, count);
        if (offset == AT_POSITION) {
            lseek(descriptor, (off_t)size, SEEK_CUR);
        }
        unlock();
        return size;
    }
    if (action == ACTION_SHORT) {
        count = halve(own, count);
    }
    int is_synchronous = (mode & (O_DSYNC | O_SYNC)) || (rwf & (RWF_DSYNC | RWF_SYNC));
    uint16_t flags = (is_synchronous ? SYNCHRONOUS : 0) | (action == ACTION_FAIL_AFTER ? REFUSED : 0);
    uint64_t at = append(KIND_WRITE, flags, status.st_ino, where, UNFINISHED, own, count);
    int64_t result = raw_write(descriptor, own, count, offset, rwf);
    finish(at, result);
    if (flags == SYNCHRONOUS && result >= 0) {
        append(KIND_WRITE_FLUSHED, flags, status.st_ino, at, result, NULL, 0);
    }
    result = outcome(action, result);
    unlock();
    return result;
}

EXPORT ssize_t write(int descriptor, const void *data, size_t size)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    if (!is_on()) {
        return syscall(SYS_write, descriptor, data, size);
    }
    return logged_write(descriptor, &part, 1, AT_POSITION, 0);
}

EXPORT ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    return logged_write(descriptor, parts, count, AT_POSITION, 0);
}

EXPORT ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    return logged_write(descriptor, &part, 1, offset, 0);
}

EXPORT ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset)
{
    return pwrite(descriptor, data, size, offset);
}

EXPORT ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset)
{
    return logged_write(descriptor, parts, count, offset, 0);
}

EXPORT ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset)
{
    return logged_write(descriptor, parts, count, offset, 0);
}

EXPORT ssize_t pwritev2(int descriptor, const struct iovec *parts, int count, off_t offset, int rwf)
{
    return logged_write(descriptor, parts, count, offset, rwf);
}

EXPORT ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int count, off64_t offset, int rwf)
{
    return logged_write(descriptor, parts, count, offset, rwf);
}

/* --- sizes -------------------------------------------------------------------------------------------------- */

EXPORT int ftruncate(int descriptor, off_t size)
{
    struct stat status;
    char buffer[PATH_MAX];
    if (watched_descriptor(descriptor, &status, buffer) == NULL || !S_ISREG(status.st_mode)) {
        return (int)syscall(SYS_ftruncate, descriptor, size);
    }
    lock();
    enum action action = strike(CALL_TRUNCATE | (size > status.st_size ? (uint32_t)CALL_GROW : 0));
    int64_t result = 0;
    if (action == ACTION_FAIL) {
        result = refuse();
    } else if (action != ACTION_IGNORE) {
        uint64_t at = append(KIND_TRUNCATE, 0, status.st_ino, (uint64_t)size, UNFINISHED, NULL, 0);
        result = syscall(SYS_ftruncate, descriptor, size);
        finish(at, result);
        result = outcome(action, result);
    }
    unlock();
    return (int)result;
}

EXPORT int ftruncate64(int descriptor, off64_t size)
{
    return ftruncate(descriptor, size);
}

EXPORT int truncate(const char *path, off_t size)
{
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return -1;
    }
    int result = ftruncate(descriptor, size);
    int saved = errno;
    syscall(SYS_close, descriptor);
    errno = saved;
    return result;
}

EXPORT int truncate64(const char *path, off64_t size)
{
    return truncate(path, size);
}

/* Preallocation changes no existing byte. If it extends the file with zeros, log it as a truncation to the new size. */
EXPORT int fallocate(int descriptor, int mode, off_t offset, off_t size)
{
    struct stat status;
    char buffer[PATH_MAX];
    if (watched_descriptor(descriptor, &status, buffer) == NULL) {
        return (int)syscall(SYS_fallocate, descriptor, mode, offset, size);
    }
    lock();
    enum action action = strike(CALL_TRUNCATE | (uint32_t)CALL_GROW);
    int64_t result = 0;
    if (action == ACTION_FAIL) {
        result = refuse();
    } else if (action != ACTION_IGNORE) {
        result = syscall(SYS_fallocate, descriptor, mode, offset, size);
        if (mode & ~1 /* FALLOC_FL_KEEP_SIZE */) {
            append_name(KIND_UNSEEN, status.st_ino, result, "fallocate");
        } else if (mode == 0 && offset + size > status.st_size) {
            append(KIND_TRUNCATE, 0, status.st_ino, (uint64_t)(offset + size), 0, NULL, 0);
        }
        result = outcome(action, result);
    }
    unlock();
    return (int)result;
}

EXPORT int fallocate64(int descriptor, int mode, off64_t offset, off64_t size)
{
    return fallocate(descriptor, mode, offset, size);
}

EXPORT int posix_fallocate(int descriptor, off_t offset, off_t size)
{
    return fallocate(descriptor, 0, offset, size) == 0 ? 0 : errno;
}

EXPORT int posix_fallocate64(int descriptor, off64_t offset, off64_t size)
{
    return posix_fallocate(descriptor, offset, size);
}

/* --- flushes ------------------------------------------------------------------------------------------------ */

static int logged_flush(int descriptor, long number)
{
    struct stat status;
    char buffer[PATH_MAX];
    const char *name = watched_descriptor(descriptor, &status, buffer);
    if (name == NULL) {
        return (int)syscall(number, descriptor);
    }
    int of_directory = S_ISDIR(status.st_mode);
    lock();
    enum action action = strike(CALL_FLUSH);
    uint64_t at = append_name(of_directory ? KIND_DIRECTORY_BEGIN : KIND_FLUSH_BEGIN, status.st_ino, UNFINISHED, name);
    unlock();
    if (action == ACTION_IGNORE) {
        return 0;
    }
    int64_t result = action == ACTION_FAIL ? refuse() : syscall(number, descriptor);
    int saved = errno;
    lock();
    finish(at, result);
    result = outcome(action, result);
    saved = result < 0 ? errno : saved;
    enum kind end = of_directory ? KIND_DIRECTORY_END : KIND_FLUSH_END;
    append(end, 0, status.st_ino, at, result < 0 ? -(int64_t)saved : 0, NULL, 0);
    unlock();
    errno = saved;
    return (int)result;
}

EXPORT int fsync(int descriptor)
{
    return logged_flush(descriptor, SYS_fsync);
}

EXPORT int fdatasync(int descriptor)
{
    return logged_flush(descriptor, SYS_fdatasync);
}

/* --- names -------------------------------------------------------------------------------------------------- */

static int logged_open(int at, const char *path, int flags, mode_t mode)
{
    char buffer[PATH_MAX];
    const char *name = watched_path(at, path, buffer);
    if (name == NULL) {
        return (int)syscall(SYS_openat, at, path, flags, mode);
    }
    lock();
    enum action action = strike(CALL_OPEN);
    if (action == ACTION_FAIL) {
        unlock();
        return (int)refuse();
    }
    struct stat status;
    int saved = errno;
    int is_new = (flags & O_CREAT) && fstatat(at, path, &status, 0) != 0;
    errno = saved;
    uint64_t logged = is_new ? append_name(KIND_CREATE, 0, UNFINISHED, name) : UINT64_MAX;
    int64_t descriptor = syscall(SYS_openat, at, path, flags, mode);
    finish(logged, descriptor < 0 ? descriptor : 0);
    if (descriptor >= 0 && fstat((int)descriptor, &status) == 0) {
        if (logged != UINT64_MAX) {
            record_at(logged)->inode = status.st_ino;
        } else if (S_ISREG(status.st_mode)) {
            append_name(KIND_OPEN, status.st_ino, 0, name);
            if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY) {
                append(KIND_TRUNCATE, 0, status.st_ino, 0, 0, NULL, 0);
            }
        }
    }
    if (action == ACTION_FAIL_AFTER && descriptor >= 0) {
        syscall(SYS_close, (int)descriptor);
    }
    descriptor = outcome(action, descriptor);
    unlock();
    return (int)descriptor;
}

/* Compare all bits of O_TMPFILE, because it contains the bits of O_DIRECTORY. */
#define TAKES_MODE(flags) (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE)

static mode_t mode_argument(int flags, va_list arguments)
{
    return TAKES_MODE(flags) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN_BODY(at, last)                                                                                           \
    va_list arguments;                                                                                                \
    va_start(arguments, last);                                                                                        \
    mode_t mode = mode_argument(flags, arguments);                                                                    \
    va_end(arguments);                                                                                                \
    return logged_open(at, path, flags, mode)

EXPORT int open(const char *path, int flags, ...)
{
    OPEN_BODY(AT_FDCWD, flags);
}

EXPORT int open64(const char *path, int flags, ...)
{
    OPEN_BODY(AT_FDCWD, flags);
}

EXPORT int openat(int at, const char *path, int flags, ...)
{
    OPEN_BODY(at, flags);
}

EXPORT int openat64(int at, const char *path, int flags, ...)
{
    OPEN_BODY(at, flags);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return logged_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* With _FORTIFY_SOURCE, compilers replace calls to open and openat with calls to these functions. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);

EXPORT int __open_2(const char *path, int flags)
{
    return logged_open(AT_FDCWD, path, flags, 0);
}

EXPORT int __open64_2(const char *path, int flags)
{
    return logged_open(AT_FDCWD, path, flags, 0);
}

EXPORT int __openat_2(int at, const char *path, int flags)
{
    return logged_open(at, path, flags, 0);
}

EXPORT int __openat64_2(int at, const char *path, int flags)
{
    return logged_open(at, path, flags, 0);
}

/* Log an event with two names. A name outside the watched directory is logged as "". */
static uint64_t append_names(enum kind kind, uint64_t inode, const char *old, const char *new)
{
    struct iovec parts[2] = {
        {(void *)(uintptr_t)(old == NULL ? "" : old), old == NULL ? 1 : strlen(old) + 1},
        {(void *)(uintptr_t)(new == NULL ? "" : new), new == NULL ? 0 : strlen(new)},
    };
    return append(kind, 0, inode, 0, UNFINISHED, parts, 2);
}

static int64_t raw_rename(int old_at, const char *old, int new_at, const char *new, int flags, int is_link)
{
    if (is_link) {
        return syscall(SYS_linkat, old_at, old, new_at, new, flags);
    }
    return syscall(SYS_renameat2, old_at, old, new_at, new, flags);
}

static int logged_rename(int old_at, const char *old, int new_at, const char *new, int flags, int is_link)
{
    char old_buffer[PATH_MAX];
    char new_buffer[PATH_MAX];
    const char *old_name = watched_path(old_at, old, old_buffer);
    const char *new_name = watched_path(new_at, new, new_buffer);
    if (old_name == NULL && new_name == NULL) {
        return (int)raw_rename(old_at, old, new_at, new, flags, is_link);
    }
    lock();
    enum action action = strike(CALL_RENAME);
    int64_t result = 0;
    if (action == ACTION_FAIL) {
        result = refuse();
    } else if (action != ACTION_IGNORE) {
        struct stat status = {0};
        int follow = is_link && (flags & AT_SYMLINK_FOLLOW) ? 0 : AT_SYMLINK_NOFOLLOW;
        uint64_t inode = fstatat(old_at, old, &status, follow) == 0 ? status.st_ino : 0;
        uint64_t logged;
        if (!is_link && (flags & 2 /* RENAME_EXCHANGE */)) {
            logged = append_name(KIND_UNSEEN, inode, UNFINISHED, "renameat2(RENAME_EXCHANGE)");
        } else {
            logged = append_names(is_link ? KIND_LINK : KIND_RENAME, inode, old_name, new_name);
        }
        result = raw_rename(old_at, old, new_at, new, flags, is_link);
        finish(logged, result);
        result = outcome(action, result);
    }
    unlock();
    return (int)result;
}

EXPORT int rename(const char *old, const char *new)
{
    return logged_rename(AT_FDCWD, old, AT_FDCWD, new, 0, 0);
}

EXPORT int renameat(int old_at, const char *old, int new_at, const char *new)
{
    return logged_rename(old_at, old, new_at, new, 0, 0);
}

EXPORT int renameat2(int old_at, const char *old, int new_at, const char *new, unsigned int flags)
{
    return logged_rename(old_at, old, new_at, new, (int)flags, 0);
}

EXPORT int link(const char *old, const char *new)
{
    return logged_rename(AT_FDCWD, old, AT_FDCWD, new, 0, 1);
}

EXPORT int linkat(int old_at, const char *old, int new_at, const char *new, int flags)
{
    return logged_rename(old_at, old, new_at, new, flags, 1);
}

static int logged_unlink(int at, const char *path, int flags)
{
    char buffer[PATH_MAX];
    const char *name = (flags & AT_REMOVEDIR) ? NULL : watched_path(at, path, buffer);
    if (name == NULL) {
        return (int)syscall(SYS_unlinkat, at, path, flags);
    }
    lock();
    enum action action = strike(CALL_UNLINK);
    int64_t result = 0;
    if (action == ACTION_FAIL) {
        result = refuse();
    } else if (action != ACTION_IGNORE) {
        uint64_t logged = append_name(KIND_UNLINK, 0, UNFINISHED, name);
        result = syscall(SYS_unlinkat, at, path, flags);
        finish(logged, result);
        result = outcome(action, result);
    }
    unlock();
    return (int)result;
}

EXPORT int unlink(const char *path)
{
    return logged_unlink(AT_FDCWD, path, 0);
}

EXPORT int unlinkat(int at, const char *path, int flags)
{
    return logged_unlink(at, path, flags);
}

EXPORT int remove(const char *path)
{
    struct stat status;
    int is_directory = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
    return logged_unlink(AT_FDCWD, path, is_directory ? AT_REMOVEDIR : 0);
}

/* --- calls that cannot be logged, but must be noticed ----------------------------------------------------------- */

static void note(enum kind kind, int descriptor, const char *what)
{
    struct stat status;
    char buffer[PATH_MAX];
    const char *name = watched_descriptor(descriptor, &status, buffer);
    if (name != NULL && S_ISREG(status.st_mode)) {
        int saved = errno;
        lock();
        append_name(kind, status.st_ino, 0, what == NULL ? name : what);
        unlock();
        errno = saved;
    }
}

EXPORT void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset)
{
    if ((protection & PROT_WRITE) && (flags & MAP_TYPE) != MAP_PRIVATE && !(flags & MAP_ANONYMOUS)) {
        note(KIND_MAPPED, descriptor, NULL);
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, descriptor, offset);
}

EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int descriptor, off64_t offset)
{
    return mmap(address, size, protection, flags, descriptor, offset);
}

EXPORT int msync(void *address, size_t size, int flags)
{
    if (is_on()) {
        lock();
        append(KIND_MSYNC, 0, 0, (uint64_t)(uintptr_t)address, (int64_t)size, NULL, 0);
        unlock();
    }
    return (int)syscall(SYS_msync, address, size, flags);
}

EXPORT ssize_t sendfile(int to, int from, off_t *offset, size_t size)
{
    note(KIND_UNSEEN, to, "sendfile");
    return syscall(SYS_sendfile, to, from, offset, size);
}

EXPORT ssize_t sendfile64(int to, int from, off64_t *offset, size_t size)
{
    return sendfile(to, from, offset, size);
}

EXPORT ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned int flags)
{
    note(KIND_UNSEEN, to, "copy_file_range");
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
}

/* --- calls by the recorded process ------------------------------------------------------------------------------ */

int statelog_shim_mark(const void *data, size_t size);

/* Log a mark, for example that an operation has begun or was acknowledged. */
EXPORT int statelog_shim_mark(const void *data, size_t size)
{
    if (log_head == NULL) {
        return -1;
    }
    struct iovec part = {(void *)(uintptr_t)data, size};
    lock();
    uint64_t at = append(KIND_MARK, 0, 0, 0, 0, &part, 1);
    unlock();
    return at == UINT64_MAX ? -1 : 0;
}
