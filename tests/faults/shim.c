/* LD_PRELOAD shim that counts, records, delays or fails durable system calls, or kills the process at one.
 *
 * A durable call changes a file or a directory entry below one of the roots: sync, write, truncate, and calls that
 * create, move or remove a file, a folder or a link.
 *   FAULTS_ROOTS     folders, separated by colons
 *   FAULTS_STATE     a file shared by all processes: counters, a lock, the items already killed
 *   FAULTS_WHO       coordinator, worker or gateway; empty for all. Commands such as review count as coordinator
 *   FAULTS_KILL_AT   kill the process instead of making the n-th durable call, counted over all processes
 *   FAULTS_KILL_STEP s: kill the worker of item s*n (last four digits) instead of making its n-th call, once per item
 *   FAULTS_KILL_UNLINK  kill the process instead of deleting the first file whose path ends with this
 *   FAULTS_EIO       fsync of a path that contains this fails with EIO, FAULTS_TIMES times
 *   FAULTS_DELAY     every fsync takes this many milliseconds longer
 *   FAULTS_FORKS     the first n forks of a worker fail with EAGAIN
 *   FAULTS_ROOM      a fork fails with EAGAIN while n workers are alive
 *   FAULTS_CLOCK     the wall clock is this many seconds ahead, plus the fifth counter
 *   FAULTS_RECORD    a file that receives every durable call with its data, in order
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ITEMS 65536
struct shared {
    atomic_long calls, kills, failed_syncs, failed_forks, clock;
    atomic_int lock;
    atomic_char hit[ITEMS];
};
static struct shared *shared;
static const char *roots, *who, *eio, *kill_unlink;
static long kill_at, kill_step, times = 1, delay, forks, room, ahead;
static int record = -1;
static int is_template;
static const char *role;
static pid_t first;
static pid_t counted_for;
static atomic_long own;
static long item;
static __thread int inside;

static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_open)(const char *, int, ...), (*real_openat)(int, const char *, int, ...);
static int (*real_rename)(const char *, const char *);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlink)(const char *), (*real_unlinkat)(int, const char *, int);
static int (*real_mkdir)(const char *, mode_t), (*real_mkdirat)(int, const char *, mode_t);
static int (*real_rmdir)(const char *), (*real_symlinkat)(const char *, int, const char *);
static pid_t (*real_fork)(void);
static int (*real_clock)(clockid_t, struct timespec *);
static ssize_t (*real_send)(int, const void *, size_t, int);

static long number(const char *name, long fallback) {
    const char *text = getenv(name);
    return text ? atol(text) : fallback;
}

static void resolve(void) {
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_renameat = dlsym(RTLD_NEXT, "renameat");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    real_mkdir = dlsym(RTLD_NEXT, "mkdir");
    real_mkdirat = dlsym(RTLD_NEXT, "mkdirat");
    real_rmdir = dlsym(RTLD_NEXT, "rmdir");
    real_symlinkat = dlsym(RTLD_NEXT, "symlinkat");
    real_fork = dlsym(RTLD_NEXT, "fork");
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    real_send = dlsym(RTLD_NEXT, "send");
}

/* Constructors of other libraries may call us before our own constructor has run. */
#define READY if (!real_send) resolve();

__attribute__((constructor)) static void begin(void) {
    READY
    roots = getenv("FAULTS_ROOTS");
    who = getenv("FAULTS_WHO");
    eio = getenv("FAULTS_EIO");
    kill_unlink = getenv("FAULTS_KILL_UNLINK");
    kill_at = number("FAULTS_KILL_AT", 0);
    kill_step = number("FAULTS_KILL_STEP", 0);
    times = number("FAULTS_TIMES", 1);
    delay = number("FAULTS_DELAY", 0);
    forks = number("FAULTS_FORKS", 0);
    room = number("FAULTS_ROOM", 0);
    ahead = number("FAULTS_CLOCK", 0);
    first = getpid();
    char line[4096] = {0};
    int file = real_open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    for (ssize_t at = 0; at < size; at++) if (!line[at]) line[at] = ' ';
    is_template = strstr(line, "agentos.engines.template") != NULL;
    /* Programs started for an item inherit the shim, but are not part of agentos. */
    role = getenv("AGENTOS_ITEM_ID") ? "program" : is_template ? "template"
        : strstr(line, "agentos gateway") ? "gateway" : "coordinator";
    const char *state = getenv("FAULTS_STATE");
    if (state) {
        int shared_file = real_open(state, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (real_ftruncate(shared_file, sizeof *shared) == 0)
            shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_file, 0);
        close(shared_file);
    }
    const char *log = getenv("FAULTS_RECORD");
    if (log) record = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_worker(void) { return is_template && getpid() != first; }

static int is_target(void) {
    if (!who || !*who) return 1;
    return strcmp(who, "worker") == 0 ? is_worker() : role && strcmp(who, role) == 0;
}

static int below(const char *path) {
    if (!roots || !path || path[0] != '/') return 0;
    /* SQLite's WAL index is shared memory, not durable. */
    size_t end = strlen(path);
    if (end > 4 && strcmp(path + end - 4, "-shm") == 0) return 0;
    for (const char *root = roots; *root;) {
        size_t length = strcspn(root, ":");
        if (strncmp(path, root, length) == 0 && (path[length] == '/' || !path[length])) return 1;
        root += length + (root[length] == ':');
    }
    return 0;
}

static void path_of(int file, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
}

static void path_at(int folder, const char *name, char *path, size_t size) {
    if (name[0] == '/') { snprintf(path, size, "%s", name); return; }
    char start[3000];
    if (folder == AT_FDCWD) { if (!getcwd(start, sizeof start)) start[0] = 0; }
    else path_of(folder, start, sizeof start);
    snprintf(path, size, "%s/%s", start, name);
}

/* Counts the call that is about to be made; kills the process if this is the call to kill it at. */
static void before(void) {
    if (!shared || !is_target()) return;
    if (counted_for != getpid()) { counted_for = getpid(); atomic_store(&own, 0); item = 0; }
    long call = atomic_fetch_add(&shared->calls, 1) + 1;
    long mine = atomic_fetch_add(&own, 1) + 1;
    int due = kill_at && call == kill_at;
    long nth = kill_step ? item % 10000 / kill_step : 0;
    if (nth && is_worker() && item < ITEMS && item % kill_step == 0
        && mine >= nth && !atomic_exchange(&shared->hit[item], 1)) due = 1;
    if (due) {
        atomic_fetch_add(&shared->kills, 1);
        kill(getpid(), SIGKILL);
        pause();
    }
}

static void before_unlink(const char *path) {
    if (!kill_unlink || !shared || !is_target() ) return;
    size_t length = strlen(path), wanted = strlen(kill_unlink);
    if (length < wanted || strcmp(path + length - wanted, kill_unlink) || access(path, F_OK)) return;
    if (atomic_fetch_add(&shared->kills, 1)) return;
    kill(getpid(), SIGKILL);
    pause();
}

static void enter(void) {
    inside++;
    if (record >= 0 && shared)
        while (atomic_exchange(&shared->lock, 1)) usleep(20);
}

static void leave(void) {
    if (record >= 0 && shared) atomic_store(&shared->lock, 0);
    inside--;
}

static void note(const char *what, const char *path, const char *other, long at, const void *data, size_t size) {
    if (record < 0) return;
    char head[8192];
    int length = snprintf(head, sizeof head, "%s\t%s\t%s\t%ld\t%zu\n", what, path, other, at, size);
    if (real_write(record, head, length) < 0 || (size && real_write(record, data, size) < 0)) abort();
}

static int fails_sync(const char *path) {
    if (delay) { struct timespec rest = {delay / 1000, delay % 1000 * 1000000}; nanosleep(&rest, NULL); }
    if (!eio || !is_target() || !strstr(path, eio) || !shared) return 0;
    if (atomic_fetch_add(&shared->failed_syncs, 1) >= times) return 0;
    errno = EIO;
    return 1;
}

static int sync_by(int (*real)(int), int file) {
    READY
    char path[4096];
    path_of(file, path, sizeof path);
    if (inside || !below(path)) return real(file);
    before();
    if (fails_sync(path)) return -1;
    enter();
    int found = real(file);
    note("sync", path, "", 0, NULL, 0);
    leave();
    return found;
}
int fsync(int file) { READY return sync_by(real_fsync, file); }
int fdatasync(int file) { READY return sync_by(real_fdatasync, file); }

ssize_t write(int file, const void *data, size_t size) {
    READY
    char path[4096];
    if (inside || !roots) return real_write(file, data, size);
    path_of(file, path, sizeof path);
    if (!below(path)) return real_write(file, data, size);
    before();
    enter();
    ssize_t found = real_write(file, data, size);
    off_t end = lseek(file, 0, SEEK_CUR);
    if (found > 0) note("write", path, "", (long)(end - found), data, (size_t)found);
    leave();
    return found;
}

ssize_t pwrite64(int file, const void *data, size_t size, off_t at) {
    READY
    char path[4096];
    path_of(file, path, sizeof path);
    if (inside || !below(path)) return real_pwrite(file, data, size, at);
    before();
    enter();
    ssize_t found = real_pwrite(file, data, size, at);
    if (found > 0) note("write", path, "", (long)at, data, (size_t)found);
    leave();
    return found;
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return pwrite64(file, data, size, at); }

int ftruncate64(int file, off_t size) {
    READY
    char path[4096];
    path_of(file, path, sizeof path);
    if (inside || !below(path)) return real_ftruncate(file, size);
    before();
    enter();
    int found = real_ftruncate(file, size);
    note("truncate", path, "", (long)size, NULL, 0);
    leave();
    return found;
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

static int open_by(int folder, const char *name, int flags, mode_t mode) {
    READY
    char path[8192];
    path_at(folder, name, path, sizeof path);
    if (inside || !below(path)) return real_openat(folder, name, flags, mode);
    const char *task = strstr(path, "/.locks/task-");
    struct stat old;
    int is_new = (flags & O_CREAT) && lstat(path, &old) != 0;
    if (is_new || (flags & O_TRUNC)) before();
    enter();
    int found = real_openat(folder, name, flags, mode);
    if (found >= 0 && is_new) note("create", path, "", 0, NULL, 0);
    else if (found >= 0 && (flags & O_TRUNC)) note("truncate", path, "", 0, NULL, 0);
    leave();
    if (task && strstr(path, ".lock") && is_worker()) {
        if (counted_for != getpid()) { counted_for = getpid(); atomic_store(&own, 0); }
        const char *digits = strrchr(path, '-');
        item = digits ? atol(digits + 1) : 0;
    }
    return found;
}
#define MODE mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open64(const char *name, int flags, ...) { MODE return open_by(AT_FDCWD, name, flags, mode); }
int open(const char *name, int flags, ...) { MODE return open_by(AT_FDCWD, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return open_by(folder, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return open_by(folder, name, flags, mode); }

int renameat(int old_folder, const char *old, int new_folder, const char *name) {
    READY
    char from[8192], to[8192];
    path_at(old_folder, old, from, sizeof from);
    path_at(new_folder, name, to, sizeof to);
    if (inside || !below(to)) return real_renameat(old_folder, old, new_folder, name);
    before();
    enter();
    int found = real_renameat(old_folder, old, new_folder, name);
    if (found == 0) note("rename", from, to, 0, NULL, 0);
    leave();
    return found;
}
int rename(const char *old, const char *name) { return renameat(AT_FDCWD, old, AT_FDCWD, name); }

int unlinkat(int folder, const char *name, int flags) {
    READY
    char path[8192];
    path_at(folder, name, path, sizeof path);
    if (inside || !below(path)) return real_unlinkat(folder, name, flags);
    before();
    before_unlink(path);
    enter();
    int found = real_unlinkat(folder, name, flags);
    if (found == 0) note("unlink", path, "", 0, NULL, 0);
    leave();
    return found;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int mkdirat(int folder, const char *name, mode_t mode) {
    READY
    char path[8192];
    path_at(folder, name, path, sizeof path);
    if (inside || !below(path)) return real_mkdirat(folder, name, mode);
    before();
    enter();
    int found = real_mkdirat(folder, name, mode);
    if (found == 0) note("mkdir", path, "", 0, NULL, 0);
    leave();
    return found;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int rmdir(const char *name) {
    READY
    char path[8192];
    path_at(AT_FDCWD, name, path, sizeof path);
    if (inside || !below(path)) return real_rmdir(name);
    before();
    enter();
    int found = real_rmdir(name);
    if (found == 0) note("unlink", path, "", 0, NULL, 0);
    leave();
    return found;
}

/* Links are not replayed after a power cut: no acknowledged data depends on one. */
int symlinkat(const char *target, int folder, const char *name) {
    READY
    char path[8192];
    path_at(folder, name, path, sizeof path);
    if (inside || !below(path)) return real_symlinkat(target, folder, name);
    before();
    inside++;
    int found = real_symlinkat(target, folder, name);
    inside--;
    return found;
}
int symlink(const char *target, const char *name) { return symlinkat(target, AT_FDCWD, name); }

/* A message from a worker to its coordinator acknowledges work, so it is recorded in order with the calls. */
ssize_t send(int file, const void *data, size_t size, int flags) {
    READY
    if (record < 0 || !is_worker()) return real_send(file, data, size, flags);
    enter();
    note("send", "", "", 0, data, size);
    leave();
    return real_send(file, data, size, flags);
}

#define MAX_WORKERS 64
static pid_t workers[MAX_WORKERS];
static pid_t fork_with_room(void) {
    int slot = 0, alive = 0;
    for (int at = 0; at < MAX_WORKERS; at++) {
        if (workers[at] && kill(workers[at], 0) == 0) alive++;
        else slot = at;
    }
    if (alive >= room) {
        if (shared) atomic_fetch_add(&shared->failed_forks, 1);
        errno = EAGAIN;
        return -1;
    }
    pid_t found = real_fork();
    if (found > 0) workers[slot] = found;
    return found;
}

pid_t fork(void) {
    READY
    if (room && is_template && getpid() == first) return fork_with_room();
    if (forks && shared && is_template && atomic_fetch_add(&shared->failed_forks, 1) < forks) {
        errno = EAGAIN;
        return -1;
    }
    return real_fork();
}

/* A disk without locks, as some network disks are. */
int flock(int file, int operation) {
    READY
    char path[4096];
    path_of(file, path, sizeof path);
    if (!inside && getenv("FAULTS_NO_LOCKS") && below(path)) { errno = ENOLCK; return -1; }
    int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    return real(file, operation);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    READY
    int found = real_clock(clock, now);
    if (clock == CLOCK_REALTIME && shared) now->tv_sec += ahead + atomic_load(&shared->clock);
    return found;
}
