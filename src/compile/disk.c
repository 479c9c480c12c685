/* disk.c: see disk.h. All paths are relative to a descriptor of the folder, checked once: a folder that is renamed or
 * replaced later cannot lead elsewhere. Names: KEY.program, KEY.note, KEY.lock, KEY-RANDOM.tmp, KEY being 32 hex
 * digits; nothing else in the folder is ever touched.
 */
#include "compile/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"

enum {
  NAME = 64,
  SCAN_EVERY = 64,        /* stores between scans: other processes write, too */
  LEFTOVER_SECONDS = 3600 /* older temporary and lock files belong to nobody */
};

struct ttpu_disk {
  int folder; /* -1: off */
  bool trust;
  int64_t bound, lock_wait_ns, write_pause_ns;
  _Atomic int64_t paused_until; /* no writing before that time */
  _Atomic int64_t errors, rejected;
  pthread_mutex_t lock; /* guards what follows */
  int64_t files, bytes, evicted, stores;
  bool scanned; /* files and bytes are known */
  char status[256];
};

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static void name_file(char out_name[NAME], ttpu_hash_t key, const char *ending) {
  char hex[TTPU_HASH_HEX];
  ttpu_hash_hex(key, hex);
  snprintf(out_name, NAME, "%s.%s", hex, ending);
}

static const char *ending(ttpu_file_kind_e kind) { return kind == TTPU_FILE_PROGRAM ? "program" : "note"; }

__attribute__((format(printf, 2, 3))) static void set_status(ttpu_disk_t *disk, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  pthread_mutex_lock(&disk->lock);
  vsnprintf(disk->status, sizeof disk->status, fmt, args);
  if (*disk->status) TTPU_LOG(WARN, "disk cache: %s", disk->status);
  pthread_mutex_unlock(&disk->lock);
  va_end(args);
}

static void count_error(ttpu_disk_t *disk, const char *what, const char *name, int error) {
  atomic_fetch_add(&disk->errors, 1);
  TTPU_LOG(WARN, "disk cache: cannot %s %s: %s", what, name, strerror(error));
}

/* --- the folder -------------------------------------------------------------------------------------------------- */

/* Like mkdir -p; what goes wrong shows when the folder is opened. */
static void make_folders(const char *path) {
  char *copy = ttpu_alloc_string(path);
  if (!copy) return;
  for (char *p = copy + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    mkdir(copy, 0700);
    *p = '/';
  }
  mkdir(copy, 0700);
  ttpu_free(copy);
}

static void open_folder(ttpu_disk_t *disk, const char *path) {
  make_folders(path);
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat info;
  if (fd < 0 || fstat(fd, &info)) {
    set_status(disk, "cannot open the folder %.100s: %s", path, strerror(errno));
  } else if (!disk->trust && info.st_uid != geteuid()) {
    set_status(disk, "%.100s belongs to user %u, not to %u; TORCHTPU_CACHE_TRUST=1 uses it anyway", path,
               (unsigned)info.st_uid, (unsigned)geteuid());
  } else if (!disk->trust && info.st_mode & (S_IWGRP | S_IWOTH)) {
    set_status(disk, "other users can write to %.100s (chmod go-w mends it); TORCHTPU_CACHE_TRUST=1 uses it anyway",
               path);
  } else {
    disk->folder = fd;
    return;
  }
  if (fd >= 0) close(fd);
}

ttpu_status_t *ttpu_disk_create(const ttpu_disk_options_t *options, ttpu_disk_t **out_disk) {
  *out_disk = NULL;
  ttpu_disk_t *disk = ttpu_alloc_zero(1, sizeof *disk);
  if (!disk) return TTPU_OUT_OF_HOST_MEMORY();
  disk->folder = -1;
  disk->trust = options->trust;
  disk->bound = options->bytes;
  disk->lock_wait_ns = (options->lock_wait_ms ? options->lock_wait_ms : 600000) * 1000000;
  disk->write_pause_ns = (options->write_pause_ms ? options->write_pause_ms : 30000) * 1000000;
  pthread_mutex_init(&disk->lock, NULL);
  if (!options->folder || !*options->folder)
    snprintf(disk->status, sizeof disk->status, "no folder"); /* wanted so: nothing to log */
  else if (options->bytes <= 0)
    snprintf(disk->status, sizeof disk->status, "the size bound is 0");
  else
    open_folder(disk, options->folder);
  *out_disk = disk;
  return NULL;
}

void ttpu_disk_free(ttpu_disk_t *disk) {
  if (!disk) return;
  if (disk->folder >= 0) close(disk->folder);
  pthread_mutex_destroy(&disk->lock);
  ttpu_free(disk);
}

bool ttpu_disk_is_writable(ttpu_disk_t *disk) {
  return disk->folder >= 0 && now_ns() >= atomic_load(&disk->paused_until);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* Why an open file must not be believed, before a byte of it is read; NULL if it may. */
static const char *check_file(const ttpu_disk_t *disk, const struct stat *info) {
  if (!S_ISREG(info->st_mode)) return "not a regular file";
  if (!disk->trust && info->st_uid != geteuid()) return "owned by another user";
  if (!disk->trust && info->st_mode & (S_IWGRP | S_IWOTH)) return "writable by other users";
  if (info->st_size < TTPU_FILE_HEADER) return "shorter than a header";
  if (info->st_size > disk->bound) return "larger than the whole cache may be";
  return NULL;
}

/* How many of |size| bytes there were; -1 and errno on failure. */
static ssize_t read_all(int fd, char *data, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = read(fd, data + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    got += (size_t)n;
  }
  return (ssize_t)got;
}

static void reject(ttpu_disk_t *disk, const char *name, bool again, const char *why) {
  if (again) return;
  atomic_fetch_add(&disk->rejected, 1);
  TTPU_LOG(WARN, "disk cache: %s is refused: %s", name, why);
}

void ttpu_disk_reject(ttpu_disk_t *disk, ttpu_hash_t key, const char *why) {
  char name[NAME];
  name_file(name, key, ending(TTPU_FILE_PROGRAM));
  reject(disk, name, false, why);
}

bool ttpu_disk_load(ttpu_disk_t *disk, ttpu_file_kind_e kind, ttpu_hash_t key, bool again, char **out_data,
                    ttpu_file_t *out_file) {
  *out_data = NULL;
  *out_file = (ttpu_file_t){0};
  if (disk->folder < 0) return false;
  char name[NAME];
  name_file(name, key, ending(kind));
  /* Not through links, and not waiting for the other end of a pipe that somebody put there. */
  const int fd = openat(disk->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ELOOP)
      reject(disk, name, again, "a symbolic link");
    else if (errno != ENOENT && !again)
      count_error(disk, "open", name, errno);
    return false;
  }
  struct stat info;
  char *data = NULL;
  const char *why = NULL;
  if (fstat(fd, &info)) {
    count_error(disk, "inspect", name, errno);
  } else if (!(why = check_file(disk, &info)) && (data = ttpu_alloc((size_t)info.st_size))) {
    const ssize_t n = read_all(fd, data, (size_t)info.st_size);
    if (n < 0) {
      count_error(disk, "read", name, errno);
    } else if (!(why = ttpu_file_parse(data, (size_t)n, out_file))) {
      if (out_file->kind != kind || !ttpu_hash_equal(out_file->key, key))
        why = "another file's content";
      else
        *out_data = data;
    }
  }
  if (*out_data)
    futimens(fd, NULL); /* least recently used goes by modification times; a folder we may only read stays as it is */
  else
    ttpu_free(data);
  if (why) reject(disk, name, again, why);
  close(fd);
  return *out_data != NULL;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

/* A failing write is followed by a pause: a full or read-only disk costs one attempt now and then, and processes do not
 * queue for the right to store what cannot be stored. */
static bool fail_write(ttpu_disk_t *disk, const char *what, const char *name, int error) {
  count_error(disk, what, name, error);
  atomic_store(&disk->paused_until, now_ns() + disk->write_pause_ns);
  set_status(disk, "cannot %s files: %s", what, strerror(error));
  return false;
}

/* A name nobody else has: O_EXCL finds the one case in which two machines on one folder drew the same. */
static int create_temporary(ttpu_disk_t *disk, ttpu_hash_t key, char out_name[NAME]) {
  static _Atomic uint64_t counter;
  char hex[TTPU_HASH_HEX];
  ttpu_hash_hex(key, hex);
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  int fd = -1;
  for (int i = 0; i < 16 && fd < 0; i++) {
    const uint64_t words[] = {(uint64_t)now_ns(), (uint64_t)getpid(), atomic_fetch_add(&counter, 1)};
    snprintf(out_name, NAME, "%s-%016llx.tmp", hex, (unsigned long long)ttpu_hash_words(words, 3).lo);
    fd = openat(disk->folder, out_name, flags, disk->trust ? 0644 : 0600);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

static bool write_all(int fd, struct iovec *parts, int count) {
  while (count) {
    const ssize_t n = writev(fd, parts, count);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    size_t left = (size_t)n;
    for (; count && left >= parts->iov_len; count--) left -= parts++->iov_len;
    if (count) {
      parts->iov_base = (char *)parts->iov_base + left;
      parts->iov_len -= left;
      if (n == 0) {
        errno = ENOSPC;
        return false;
      }
    }
  }
  return true;
}

bool ttpu_disk_store(ttpu_disk_t *disk, const ttpu_file_t *file) {
  if (!ttpu_disk_is_writable(disk)) return false;
  const int64_t size = (int64_t)(TTPU_FILE_HEADER + file->label_size + file->payload_size);
  if (size > disk->bound) {
    TTPU_LOG(INFO, "disk cache: %lld bytes are more than the whole cache may hold", (long long)size);
    return false;
  }
  char name[NAME], temporary[NAME];
  name_file(name, file->key, ending(file->kind));
  unsigned char header[TTPU_FILE_HEADER];
  ttpu_file_header(file, header);
  struct iovec parts[] = {{header, sizeof header},
                          {(char *)file->label, file->label_size},
                          {(char *)file->payload, file->payload_size}};
  const int fd = create_temporary(disk, file->key, temporary);
  if (fd < 0) return fail_write(disk, "create", temporary, errno);
  int error = write_all(fd, parts, 3) ? 0 : errno;
  if (close(fd) && !error) error = errno; /* where network file systems tell that the disk is full */
  struct stat old;
  const bool replaces = !fstatat(disk->folder, name, &old, AT_SYMLINK_NOFOLLOW);
  if (error) {
    unlinkat(disk->folder, temporary, 0);
    return fail_write(disk, "write", name, error);
  }
  if (renameat(disk->folder, temporary, disk->folder, name)) { /* this one name is taken, by a folder perhaps */
    count_error(disk, "replace", name, errno);
    unlinkat(disk->folder, temporary, 0);
    return false;
  }
  pthread_mutex_lock(&disk->lock);
  disk->status[0] = 0;
  disk->bytes += size - (replaces ? old.st_size : 0);
  disk->files += !replaces;
  const bool scan = disk->bytes > disk->bound || disk->stores++ % SCAN_EVERY == 0;
  pthread_mutex_unlock(&disk->lock);
  if (scan) ttpu_disk_prune(disk, disk->bound);
  return true;
}

/* --- locks ------------------------------------------------------------------------------------------------------- */

/* The file that |fd| locks is still the one of that name: its last holder deletes a lock file before letting go. */
static bool is_current(const ttpu_disk_t *disk, const char *name, int fd) {
  struct stat held, named;
  return !fstat(fd, &held) && !fstatat(disk->folder, name, &named, AT_SYMLINK_NOFOLLOW) &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

/* flock, because the kernel drops it with its holder's last breath. Polled rather than waited for: a holder that hangs
 * must not hang everybody else. */
int ttpu_disk_lock(ttpu_disk_t *disk, ttpu_hash_t key) {
  if (!ttpu_disk_is_writable(disk)) return -1;
  char name[NAME];
  name_file(name, key, "lock");
  const int64_t deadline = now_ns() + disk->lock_wait_ns;
  long pause = 1;
  for (;;) {
    const int fd = openat(disk->folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) {
      TTPU_LOG(DEBUG, "disk cache: no lock %s: %s", name, strerror(errno));
      return -1;
    }
    while (flock(fd, LOCK_EX | LOCK_NB)) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK || now_ns() >= deadline) {
        TTPU_LOG(INFO, "disk cache: going on without the lock %s: %s", name, strerror(errno));
        close(fd);
        return -1;
      }
      sleep_ms(pause);
      if (pause < 16) pause *= 2;
    }
    if (is_current(disk, name, fd)) return fd;
    close(fd);
  }
}

void ttpu_disk_unlock(ttpu_disk_t *disk, ttpu_hash_t key, int lock) {
  if (lock < 0) return;
  char name[NAME];
  name_file(name, key, "lock");
  unlinkat(disk->folder, name, 0);
  flock(lock, LOCK_UN); /* not close alone: a child forked meanwhile has a copy of the descriptor */
  close(lock);
}

/* --- eviction ---------------------------------------------------------------------------------------------------- */

typedef struct {
  char name[NAME];
  struct timespec used;
  int64_t bytes;
} entry_t;

static bool is_named(const char *name, const char *after_key) {
  return strspn(name, "0123456789abcdef") == 32 && !strcmp(name + 32, after_key);
}

static bool is_temporary(const char *name) {
  return strspn(name, "0123456789abcdef") == 32 && name[32] == '-' &&
         strspn(name + 33, "0123456789abcdef") == 16 && !strcmp(name + 49, ".tmp");
}

static int by_use(const void *a, const void *b) {
  const entry_t *x = a, *y = b;
  if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
  if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Takes a lock file away unless a process holds it. */
static void remove_lock(const ttpu_disk_t *disk, const char *name) {
  const int fd = openat(disk->folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (!flock(fd, LOCK_EX | LOCK_NB)) {
    if (is_current(disk, name, fd)) unlinkat(disk->folder, name, 0);
    flock(fd, LOCK_UN);
  }
  close(fd);
}

/* Lists our files with their sizes and removes what is left over. False, with nothing listed, when it cannot. */
static bool list_files(const ttpu_disk_t *disk, entry_t **out_entries, size_t *out_count) {
  *out_entries = NULL;
  *out_count = 0;
  const int fd = openat(disk->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = fd < 0 ? NULL : fdopendir(fd);
  if (!dir) {
    if (fd >= 0) close(fd);
    return false;
  }
  entry_t *entries = NULL;
  size_t count = 0, capacity = 0;
  const time_t old = time(NULL) - LEFTOVER_SECONDS;
  bool good = true;
  for (struct dirent *item; good && (item = readdir(dir));) {
    const char *name = item->d_name;
    const bool lock = is_named(name, ".lock"), temporary = is_temporary(name);
    if (!lock && !temporary && !is_named(name, ".program") && !is_named(name, ".note")) continue;
    struct stat info;
    if (fstatat(disk->folder, name, &info, AT_SYMLINK_NOFOLLOW)) continue; /* another process was faster */
    if ((lock || temporary) && info.st_mtime > old) continue;
    if (lock) {
      remove_lock(disk, name);
    } else if (temporary) {
      unlinkat(disk->folder, name, 0);
    } else {
      if (count == capacity) {
        capacity = capacity ? capacity * 2 : 256;
        entry_t *more = ttpu_alloc_resize(entries, capacity * sizeof *entries);
        if (!(good = more != NULL)) break;
        entries = more;
      }
      entry_t *entry = &entries[count++];
      snprintf(entry->name, sizeof entry->name, "%.63s", name);
      entry->used = info.st_mtim;
      entry->bytes = info.st_size;
    }
  }
  closedir(dir);
  if (!good) {
    ttpu_free(entries);
    return false;
  }
  *out_entries = entries;
  *out_count = count;
  return true;
}

void ttpu_disk_prune(ttpu_disk_t *disk, int64_t bytes) {
  entry_t *entries;
  size_t count, gone = 0;
  if (disk->folder < 0 || !list_files(disk, &entries, &count)) return;
  int64_t total = 0, removed = 0;
  for (size_t i = 0; i < count; i++) total += entries[i].bytes;
  if (total > bytes) {
    qsort(entries, count, sizeof *entries, by_use);
    /* An eighth more than must go, so that a full cache is not listed at every store. */
    const int64_t target = bytes - bytes / 8;
    for (; gone < count && total > target; gone++) {
      if (unlinkat(disk->folder, entries[gone].name, 0) && errno != ENOENT) {
        count_error(disk, "delete", entries[gone].name, errno);
        break; /* not ours to delete: the next one will not be either */
      }
      total -= entries[gone].bytes;
      removed++;
    }
    TTPU_LOG(INFO, "disk cache: %lld files evicted, %lld bytes stay", (long long)removed, (long long)total);
  }
  ttpu_free(entries);
  pthread_mutex_lock(&disk->lock);
  disk->scanned = true;
  disk->files = (int64_t)count - removed;
  disk->bytes = total;
  disk->evicted += removed;
  pthread_mutex_unlock(&disk->lock);
}

void ttpu_disk_stats(ttpu_disk_t *disk, ttpu_disk_stats_t *out_stats) {
  pthread_mutex_lock(&disk->lock);
  const bool scanned = disk->scanned;
  pthread_mutex_unlock(&disk->lock);
  /* Not at the start: a run that only reads need not list a folder that may be large and far away. */
  if (!scanned) ttpu_disk_prune(disk, disk->bound);
  pthread_mutex_lock(&disk->lock);
  *out_stats = (ttpu_disk_stats_t){.files = disk->files,
                                   .bytes = disk->bytes,
                                   .evicted = disk->evicted,
                                   .errors = atomic_load(&disk->errors),
                                   .rejected = atomic_load(&disk->rejected)};
  memcpy(out_stats->status, disk->status, sizeof out_stats->status);
  pthread_mutex_unlock(&disk->lock);
}
