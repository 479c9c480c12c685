/* disk_test.c: the disk tier under attack: damaged and foreign files, folders that cannot be used, full disks, killed
 * and hanging processes, eviction. Tests that need root to change owners say so and skip that part without it.
 */
#include "compile/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/alloc.h"
#include "check.h"
#include "temp.h"

enum { SIZE = 5000, STRANGER = 54321 };

static char folder[TEMP_PATH];

static ttpu_hash_t key_of(int i) { return ttpu_hash_words((uint64_t[]){(uint64_t)i}, 1); }

static ttpu_disk_t *open_disk(const char *path, int64_t bytes, bool trust) {
  const ttpu_disk_options_t options = {
      .folder = path, .bytes = bytes, .trust = trust, .lock_wait_ms = 60, .write_pause_ms = 40};
  ttpu_disk_t *disk = NULL;
  CHECK_OK(ttpu_disk_create(&options, &disk));
  return disk;
}

static void fill(char *payload, int i, size_t size) {
  for (size_t k = 0; k < size; k++) payload[k] = (char)((size_t)i * 131 + k * 7 + k / 251);
}

static bool store_size(ttpu_disk_t *disk, int i, size_t size) {
  char *payload = malloc(size);
  fill(payload, i, size);
  const ttpu_file_t file = {TTPU_FILE_PROGRAM, key_of(i), "label", 5, payload, size};
  const bool stored = ttpu_disk_store(disk, &file);
  free(payload);
  return stored;
}

static bool store(ttpu_disk_t *disk, int i) { return store_size(disk, i, SIZE); }

/* 1: there and right, 0: a miss, -1: wrong content, which no test allows. */
static int found(ttpu_disk_t *disk, int i) {
  char *data;
  ttpu_file_t file;
  if (!ttpu_disk_load(disk, TTPU_FILE_PROGRAM, key_of(i), false, &data, &file)) return data ? -1 : 0;
  char *expected = malloc(file.payload_size + 1);
  fill(expected, i, file.payload_size);
  const bool same = !memcmp(file.payload, expected, file.payload_size);
  free(expected);
  ttpu_free(data);
  return same ? 1 : -1;
}

static ttpu_disk_stats_t stats_of(ttpu_disk_t *disk) {
  ttpu_disk_stats_t stats;
  ttpu_disk_stats(disk, &stats);
  return stats;
}

static const char *path_of(int i, const char *ending) {
  static char path[TEMP_PATH + 64];
  char hex[TTPU_HASH_HEX];
  ttpu_hash_hex(key_of(i), hex);
  snprintf(path, sizeof path, "%s/%s.%s", folder, hex, ending);
  return path;
}

static void age(const char *path, int seconds) {
  struct timespec t[2];
  clock_gettime(CLOCK_REALTIME, &t[0]);
  t[0].tv_sec -= seconds;
  t[1] = t[0];
  CHECK_INT(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW), 0);
}

static void overwrite(const char *path, const void *data, size_t size) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK_INT(write(fd, data, size), size);
  close(fd);
}

/* --- ordinary use ------------------------------------------------------------------------------------------------ */

TEST(store_and_load) {
  temp_make(folder);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK_INT(found(disk, 1), 0);
  CHECK(store(disk, 1));
  CHECK_INT(found(disk, 1), 1);
  CHECK(store(disk, 1)); /* replacing is not adding */
  CHECK(store(disk, 2));
  ttpu_disk_stats_t stats = stats_of(disk);
  CHECK_INT(stats.files, 2);
  CHECK_INT(stats.bytes, 2 * (TTPU_FILE_HEADER + 5 + SIZE));
  CHECK_INT(stats.errors + stats.rejected + stats.evicted, 0);
  CHECK_STR(stats.status, "");
  struct stat info;
  CHECK(!stat(path_of(1, "program"), &info) && (info.st_mode & 0777) == 0600);
  ttpu_disk_free(disk);
  disk = open_disk(folder, 1 << 20, false);
  CHECK_INT(found(disk, 2), 1);
  CHECK_INT(stats_of(disk).files, 2);
  CHECK_INT(temp_count(folder, ".tmp", NULL), 0);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

TEST(folders_are_made_private) {
  temp_make(folder);
  char path[TEMP_PATH + 16];
  snprintf(path, sizeof path, "%s/a/b/c", folder);
  const mode_t mask = umask(0);
  ttpu_disk_t *disk = open_disk(path, 1 << 20, false);
  umask(mask);
  CHECK(store(disk, 1));
  struct stat info;
  CHECK(!stat(path, &info) && (info.st_mode & 0777) == 0700);
  snprintf(path, sizeof path, "%s/a", folder);
  CHECK(!stat(path, &info) && (info.st_mode & 0777) == 0700);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

/* --- files not to be believed ------------------------------------------------------------------------------------ */

/* Stores 1, lets |damage| loose on its file, and expects a counted miss that a new store mends. */
static void damaged(const char *what, void (*damage)(const char *path)) {
  temp_make(folder);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK(store(disk, 1) && store(disk, 2));
  char path[TEMP_PATH + 64];
  snprintf(path, sizeof path, "%s", path_of(1, "program"));
  damage(path);
  const int seen = found(disk, 1);
  const ttpu_disk_stats_t stats = stats_of(disk);
  if (seen || stats.rejected != 1) fprintf(stderr, "after damage: %s\n", what);
  CHECK_INT(seen, 0);
  CHECK_INT(stats.rejected, 1);
  CHECK_INT(stats.errors, 0);
  char *data;
  ttpu_file_t file;
  CHECK(!ttpu_disk_load(disk, TTPU_FILE_PROGRAM, key_of(1), true, &data, &file));
  CHECK_INT(stats_of(disk).rejected, 1); /* the second look counts no more */
  CHECK(store(disk, 1));
  CHECK_INT(found(disk, 1), 1);
  CHECK_INT(found(disk, 2), 1);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

static void empty(const char *path) { CHECK_INT(truncate(path, 0), 0); }
static void header_only(const char *path) { CHECK_INT(truncate(path, TTPU_FILE_HEADER), 0); }
static void cut(const char *path) { CHECK_INT(truncate(path, SIZE), 0); }
static void longer(const char *path) { CHECK_INT(truncate(path, 2 * SIZE), 0); }
static void larger_than_the_cache(const char *path) { CHECK_INT(truncate(path, 1ll << 40), 0); }
static void garbage(const char *path) {
  char text[SIZE];
  memset(text, '#', sizeof text);
  overwrite(path, text, sizeof text);
}
static void flip(const char *path, off_t at) {
  const int fd = open(path, O_RDWR);
  char c;
  CHECK_INT(pread(fd, &c, 1, at), 1);
  c ^= 0x10;
  CHECK_INT(pwrite(fd, &c, 1, at), 1);
  close(fd);
}
static void flipped_payload(const char *path) { flip(path, 3000); }
static void flipped_label(const char *path) { flip(path, TTPU_FILE_HEADER + 1); }
static void flipped_checksum(const char *path) { flip(path, 50); }

/* A file of the next format, right in itself. */
static void newer(const char *path) { flip(path, 8); }

static void others_content(const char *path) {
  unlink(path);
  CHECK_INT(link(path_of(2, "program"), path), 0);
}

static void other_kind(const char *path) {
  char payload[100] = {0};
  unsigned char data[TTPU_FILE_HEADER + 100] = {0};
  const ttpu_file_t file = {TTPU_FILE_NOTE, key_of(1), payload, 0, payload, 100};
  ttpu_file_header(&file, data);
  overwrite(path, data, sizeof data);
}

static void link_to_it(const char *path) {
  char to[TEMP_PATH + 64];
  snprintf(to, sizeof to, "%s/moved", folder);
  CHECK_INT(rename(path, to), 0);
  CHECK_INT(symlink(to, path), 0);
}

static void pipe_in_place(const char *path) {
  unlink(path);
  CHECK_INT(mkfifo(path, 0600), 0);
}

static void group_writable(const char *path) { CHECK_INT(chmod(path, 0620), 0); }
static void world_writable(const char *path) { CHECK_INT(chmod(path, 0602), 0); }
static void strangers(const char *path) { CHECK_INT(chown(path, STRANGER, -1), 0); }

TEST(damaged_files) {
  damaged("empty", empty);
  damaged("header only", header_only);
  damaged("cut", cut);
  damaged("longer", longer);
  damaged("larger than the cache", larger_than_the_cache);
  damaged("garbage", garbage);
  damaged("flipped payload", flipped_payload);
  damaged("flipped label", flipped_label);
  damaged("flipped checksum", flipped_checksum);
  damaged("newer format", newer);
  damaged("another's content", others_content);
  damaged("another kind", other_kind);
  damaged("symbolic link", link_to_it);
  damaged("pipe", pipe_in_place);
  damaged("group writable", group_writable);
  damaged("world writable", world_writable);
  if (geteuid() == 0) damaged("a stranger's", strangers);
}

/* A folder in place of a file cannot be replaced: a miss for good, and no harm to other keys. */
TEST(folder_in_place_of_a_file) {
  temp_make(folder);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK_INT(mkdir(path_of(1, "program"), 0700), 0);
  CHECK_INT(found(disk, 1), 0);
  CHECK(!store(disk, 1));
  CHECK_INT(stats_of(disk).errors, 1);
  CHECK_INT(temp_count(folder, ".tmp", NULL), 0);
  CHECK(store(disk, 2));
  CHECK_INT(found(disk, 2), 1);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

TEST(trust_takes_what_it_is_told_to) {
  temp_make(folder);
  CHECK_INT(chmod(folder, 0777), 0);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, true);
  CHECK(store(disk, 1) && store(disk, 2));
  group_writable(path_of(1, "program"));
  CHECK_INT(found(disk, 1), 1);
  if (geteuid() == 0) strangers(path_of(2, "program"));
  CHECK_INT(found(disk, 2), 1);
  flipped_payload(path_of(1, "program")); /* trust is about people, not about bytes */
  CHECK_INT(found(disk, 1), 0);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

/* --- folders not to be used -------------------------------------------------------------------------------------- */

static void unusable(const char *path, int64_t bytes, const char *status_part) {
  ttpu_disk_t *disk = open_disk(path, bytes, false);
  CHECK(!ttpu_disk_is_writable(disk));
  CHECK(!store(disk, 1));
  CHECK_INT(found(disk, 1), 0);
  CHECK_INT(ttpu_disk_lock(disk, key_of(1)), -1);
  ttpu_disk_prune(disk, 0);
  const ttpu_disk_stats_t stats = stats_of(disk);
  if (!CHECK(strstr(stats.status, status_part))) fprintf(stderr, "status: %s\n", stats.status);
  CHECK(*stats.status);
  CHECK_INT(stats.files + stats.bytes + stats.errors, 0);
  ttpu_disk_free(disk);
}

TEST(unusable_folders) {
  temp_make(folder);
  char path[TEMP_PATH + 16];
  unusable(NULL, 1 << 20, "no folder");
  unusable("", 1 << 20, "no folder");
  unusable(folder, 0, "bound is 0");
  snprintf(path, sizeof path, "%s/file", folder);
  overwrite(path, "x", 1);
  unusable(path, 1 << 20, "Not a directory");
  snprintf(path, sizeof path, "%s/file/below", folder);
  unusable(path, 1 << 20, "Not a directory");
  unusable("/proc/torchtpu", 1 << 20, "No such file or directory"); /* nobody, not even root, can make that one */
  CHECK_INT(chmod(folder, 0770), 0);
  unusable(folder, 1 << 20, "other users can write");
  CHECK_INT(chmod(folder, 0702), 0);
  unusable(folder, 1 << 20, "TORCHTPU_CACHE_TRUST");
  CHECK_INT(chmod(folder, 0755), 0); /* reading is no danger */
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK(store(disk, 1));
  ttpu_disk_free(disk);
  if (geteuid() == 0) {
    CHECK_INT(chown(folder, STRANGER, -1), 0);
    unusable(folder, 1 << 20, "belongs to user 54321");
  }
  temp_remove(folder);
}

/* Another user's process, without root's powers: runs |act| as STRANGER; its exit status. */
static int as_stranger(int (*act)(void)) {
  const pid_t pid = fork();
  if (!pid) {
    check_failed_ = 0;
    if (setgid(STRANGER) || setuid(STRANGER)) _exit(99);
    _exit(act());
  }
  int status;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A trusted folder that this user can read but not write: hits, no lock, one counted failure to write, then a pause. */
static int read_only_use(void) {
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, true);
  if (found(disk, 1) != 1) return 1;
  if (ttpu_disk_lock(disk, key_of(2)) != -1) return 2;
  if (store(disk, 2) || store(disk, 3)) return 3;
  if (ttpu_disk_is_writable(disk)) return 4;
  const ttpu_disk_stats_t stats = stats_of(disk);
  if (stats.errors != 1 || !strstr(stats.status, "Permission denied")) return 5;
  if (found(disk, 1) != 1) return 6;
  ttpu_disk_free(disk);
  return check_failed_ ? 7 : 0;
}

static int refused_use(void) {
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  const bool off = !ttpu_disk_is_writable(disk) && found(disk, 1) == 0 && *stats_of(disk).status;
  ttpu_disk_free(disk);
  return off ? 0 : 1;
}

TEST(read_only_folder) {
  if (geteuid() != 0) return; /* needs a second user */
  temp_make(folder);
  CHECK_INT(chmod(folder, 0755), 0);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, true);
  CHECK(store(disk, 1)); /* trusted, and so readable for others */
  ttpu_disk_free(disk);
  CHECK_INT(as_stranger(read_only_use), 0);
  CHECK_INT(as_stranger(refused_use), 0);
  temp_remove(folder);
}

TEST(folder_goes_away) {
  temp_make(folder);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK(store(disk, 1));
  temp_remove(folder);
  CHECK_INT(found(disk, 1), 0);
  CHECK(!store(disk, 2));
  CHECK_INT(ttpu_disk_lock(disk, key_of(1)), -1);
  CHECK_INT(stats_of(disk).errors, 1);
  CHECK(!ttpu_disk_is_writable(disk));
  ttpu_disk_free(disk);
}

/* --- full disk --------------------------------------------------------------------------------------------------- */

/* A limit on the size of files makes write fail half way, as a full disk does. */
TEST(full_disk) {
  temp_make(folder);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK(store_size(disk, 1, 1000));
  struct rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
  const bool stored = store_size(disk, 2, 100000);
  setrlimit(RLIMIT_FSIZE, &old);
  CHECK(!stored);
  CHECK_INT(found(disk, 2), 0);
  CHECK_INT(temp_count(folder, "", NULL), 1); /* nothing half written is left */
  ttpu_disk_stats_t stats = stats_of(disk);
  CHECK_INT(stats.errors, 1);
  CHECK(strstr(stats.status, "cannot write files: "));
  CHECK(!ttpu_disk_is_writable(disk) && !store_size(disk, 3, 10)); /* not tried again at once */
  CHECK_INT(stats_of(disk).errors, 1);
  CHECK_INT(found(disk, 1), 1); /* reading goes on */
  usleep(60000);
  CHECK(store_size(disk, 2, 100000)); /* there is room again */
  CHECK_STR(stats_of(disk).status, "");
  CHECK_INT(found(disk, 2), 1);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

/* --- eviction ---------------------------------------------------------------------------------------------------- */

static int64_t bytes_in_folder(void) {
  DIR *dir = opendir(folder);
  int64_t bytes = 0;
  for (struct dirent *item; (item = readdir(dir));) {
    struct stat info;
    if (item->d_name[0] != '.' && !fstatat(dirfd(dir), item->d_name, &info, 0)) bytes += info.st_size;
  }
  closedir(dir);
  return bytes;
}

TEST(eviction_keeps_the_bound) {
  enum { BOUND = 12 * SIZE, COUNT = 60 };
  temp_make(folder);
  ttpu_disk_t *disk = open_disk(folder, BOUND, false);
  for (int i = 0; i < COUNT; i++) {
    CHECK(store(disk, i));
    CHECK(bytes_in_folder() <= BOUND);
    CHECK_INT(stats_of(disk).bytes, bytes_in_folder());
    age(path_of(i, "program"), 1000 - i); /* times that leave no doubt about the order */
    if (i > 0) CHECK_INT(found(disk, 0), 1); /* used all the time: stays */
  }
  const ttpu_disk_stats_t stats = stats_of(disk);
  CHECK(stats.files >= 8 && stats.files <= 12);
  CHECK_INT(stats.evicted + stats.files, COUNT);
  for (int i = 1; i < COUNT; i++) CHECK_INT(found(disk, i), i > COUNT - stats.files); /* the newest stay */
  CHECK(!store_size(disk, 100, BOUND)); /* more than all */
  CHECK_INT(stats_of(disk).files, stats.files);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

/* Several processes on one folder: each sees only its own stores between scans, together they keep the bound soon. */
TEST(eviction_across_processes) {
  enum { BOUND = 20 * SIZE };
  temp_make(folder);
  for (int p = 0; p < 3; p++)
    if (!fork()) {
      ttpu_disk_t *disk = open_disk(folder, BOUND, false);
      bool good = true;
      for (int i = 0; i < 100; i++) good &= store(disk, p * 1000 + i);
      ttpu_disk_free(disk);
      _exit(!good);
    }
  for (int p = 0, status; p < 3; p++) CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
  ttpu_disk_t *disk = open_disk(folder, BOUND, false);
  CHECK(stats_of(disk).bytes <= BOUND);
  CHECK(bytes_in_folder() <= BOUND);
  CHECK_INT(temp_count(folder, ".tmp", NULL), 0);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

TEST(what_is_not_ours_stays) {
  static const char *const names[] = {"thesis.txt", "0123456789abcdef0123456789abcdef", "x.program",
                                      "0123456789abcdef0123456789abcdefa.program",
                                      "0123456789ABCDEF0123456789abcdef.program", "model.tmp", "a.lock"};
  temp_make(folder);
  char path[TEMP_PATH + 64];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    overwrite(path, "precious", 8);
    age(path, 1000000);
  }
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  CHECK(store(disk, 1));
  ttpu_disk_prune(disk, 0);
  CHECK_INT(found(disk, 1), 0);
  CHECK_INT(stats_of(disk).files, 0);
  CHECK_INT(temp_count(folder, "", NULL), sizeof names / sizeof *names);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

TEST(leftovers_are_removed_when_old) {
  temp_make(folder);
  char hex[TTPU_HASH_HEX], temporary[TEMP_PATH + 64];
  ttpu_hash_hex(key_of(1), hex);
  snprintf(temporary, sizeof temporary, "%s/%s-0123456789abcdef.tmp", folder, hex);
  overwrite(temporary, "half", 4);
  overwrite(path_of(2, "lock"), "", 0);
  overwrite(path_of(3, "lock"), "", 0);
  const int held = open(path_of(3, "lock"), O_RDWR);
  CHECK_INT(flock(held, LOCK_EX), 0);
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  ttpu_disk_prune(disk, 1 << 20);
  CHECK_INT(temp_count(folder, ".tmp", NULL), 1); /* young: somebody may be at it */
  CHECK_INT(temp_count(folder, ".lock", NULL), 2);
  age(temporary, 7200);
  age(path_of(2, "lock"), 7200);
  age(path_of(3, "lock"), 7200);
  ttpu_disk_prune(disk, 1 << 20);
  CHECK_INT(temp_count(folder, ".tmp", NULL), 0);
  CHECK_INT(temp_count(folder, ".lock", NULL), 1); /* held */
  close(held);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

/* --- locks ------------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

TEST(locks_exclude_and_end) {
  temp_make(folder);
  ttpu_disk_t *a = open_disk(folder, 1 << 20, false), *b = open_disk(folder, 1 << 20, false);
  const int lock = ttpu_disk_lock(a, key_of(1));
  CHECK(lock >= 0);
  const int other = ttpu_disk_lock(b, key_of(2)); /* another key is free */
  CHECK(other >= 0);
  const int64_t start = now_ms();
  CHECK_INT(ttpu_disk_lock(b, key_of(1)), -1); /* who holds it too long is not waited for */
  CHECK(now_ms() - start >= 60);
  ttpu_disk_unlock(a, key_of(1), lock);
  const int again = ttpu_disk_lock(b, key_of(1));
  CHECK(again >= 0);
  ttpu_disk_unlock(b, key_of(1), again);
  ttpu_disk_unlock(b, key_of(2), other);
  ttpu_disk_unlock(b, key_of(2), -1);
  CHECK_INT(temp_count(folder, ".lock", NULL), 0); /* none is left behind */
  ttpu_disk_free(a);
  ttpu_disk_free(b);
  temp_remove(folder);
}

/* A child that was forked while the lock was held has a copy of it; who waits must not wait for that child. */
TEST(forked_children_hold_no_locks) {
  temp_make(folder);
  int go[2];
  CHECK_INT(pipe(go), 0);
  const pid_t waiter = fork(); /* before there is a lock to copy */
  if (!waiter) {
    const ttpu_disk_options_t options = {.folder = folder, .bytes = 1 << 20, .lock_wait_ms = 15000};
    ttpu_disk_t *own;
    char c;
    if (read(go[0], &c, 1) != 1 || ttpu_disk_create(&options, &own)) _exit(1);
    const int64_t start = now_ms();
    const int lock = ttpu_disk_lock(own, key_of(1));
    const int64_t spent = now_ms() - start;
    ttpu_disk_unlock(own, key_of(1), lock);
    ttpu_disk_free(own);
    _exit(lock < 0 ? 2 : spent < 50 ? 3 : spent > 10000 ? 4 : 0);
  }
  ttpu_disk_t *disk = open_disk(folder, 1 << 20, false);
  const int lock = ttpu_disk_lock(disk, key_of(1));
  const pid_t child = fork();
  if (!child) {
    sleep(30);
    _exit(0);
  }
  CHECK_INT(write(go[1], "", 1), 1);
  usleep(200000);
  ttpu_disk_unlock(disk, key_of(1), lock);
  int status;
  waitpid(waiter, &status, 0);
  CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(go[0]);
  close(go[1]);
  ttpu_disk_free(disk);
  temp_remove(folder);
}

/* Many processes in turn: never two inside at once, though the lock file is deleted and made anew each time. */
TEST(mutual_exclusion) {
  enum { PROCESSES = 5, TURNS = 40 };
  temp_make(folder);
  struct {
    _Atomic int inside, clashes, turns;
  } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int p = 0; p < PROCESSES; p++)
    if (!fork()) {
      const ttpu_disk_options_t options = {.folder = folder, .bytes = 1 << 20};
      ttpu_disk_t *disk;
      if (ttpu_disk_create(&options, &disk)) _exit(1);
      for (int i = 0; i < TURNS; i++) {
        const int lock = ttpu_disk_lock(disk, key_of(1));
        if (lock < 0) _exit(2);
        if (shared->inside++) shared->clashes++;
        if (i % 8 == 0) usleep(500);
        shared->inside--;
        shared->turns++;
        ttpu_disk_unlock(disk, key_of(1), lock);
      }
      ttpu_disk_free(disk);
      _exit(0);
    }
  for (int p = 0, status; p < PROCESSES; p++) CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
  CHECK_INT(shared->clashes, 0);
  CHECK_INT(shared->turns, PROCESSES * TURNS);
  munmap(shared, 4096);
  temp_remove(folder);
}

/* --- killed processes -------------------------------------------------------------------------------------------- */

/* Writers killed at random moments: what stands under a key's name is always whole, and their locks are free. */
TEST(killed_writers) {
  enum { ROUNDS = 40, KEYS = 6, LARGE = 1 << 20 };
  temp_make(folder);
  srand(7);
  int files = 0, halves = 0;
  /* Goes on until some died in the midst of writing, else this would show nothing. */
  for (int round = 0; round < ROUNDS || (!(files && halves) && round < 10 * ROUNDS); round++) {
    const pid_t child = fork();
    if (!child) {
      const ttpu_disk_options_t options = {.folder = folder, .bytes = 1 << 24};
      ttpu_disk_t *disk;
      if (ttpu_disk_create(&options, &disk)) _exit(1);
      for (int i = round;; i++) {
        const int lock = ttpu_disk_lock(disk, key_of(i % KEYS));
        store_size(disk, i % KEYS, LARGE + (size_t)(i % 5) * 1000);
        ttpu_disk_unlock(disk, key_of(i % KEYS), lock);
      }
    }
    usleep((useconds_t)((3000 + rand() % 5000) * (1 + round / 20))); /* a slow machine or sanitizer needs longer to get there */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ttpu_disk_t *disk = open_disk(folder, 1 << 24, false);
    for (int i = 0; i < KEYS; i++) {
      const int seen = found(disk, i);
      CHECK(seen >= 0);
      files += seen;
      const int lock = ttpu_disk_lock(disk, key_of(i));
      CHECK(lock >= 0);
      ttpu_disk_unlock(disk, key_of(i), lock);
    }
    CHECK_INT(stats_of(disk).rejected, 0);
    halves = temp_count(folder, ".tmp", NULL);
    ttpu_disk_free(disk);
  }
  CHECK(files > 0);
  CHECK(halves > 0);
  temp_remove(folder);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

TEST(allocation_failures) {
  temp_make(folder);
  const ttpu_disk_options_t options = {.folder = folder, .bytes = 8 * SIZE};
  char payload[SIZE];
  fill(payload, 1, SIZE);
  int64_t requests = 1;
  for (int64_t n = 0; n <= requests; n++) {
    ttpu_disk_t *disk = NULL;
    ttpu_alloc_fail_at(n);
    ttpu_status_t *status = ttpu_disk_create(&options, &disk);
    int seen = 0;
    for (int i = 0; disk && i < 12; i++) { /* with evictions */
      const ttpu_file_t file = {TTPU_FILE_PROGRAM, key_of(1), "label", 5, payload, SIZE};
      ttpu_disk_store(disk, &file);
      seen = found(disk, 1);
      ttpu_disk_prune(disk, 8 * SIZE);
    }
    requests = ttpu_alloc_count();
    ttpu_alloc_fail_at(-1);
    CHECK(seen >= 0);
    CHECK(!status == (disk != NULL));
    if (status) CHECK_INT(ttpu_status_code(status), TTPU_RESOURCE_EXHAUSTED);
    ttpu_status_free(status);
    if (disk) CHECK_INT(stats_of(disk).rejected + stats_of(disk).errors, 0);
    ttpu_disk_free(disk);
  }
  CHECK(requests > 10);
  temp_remove(folder);
}

int main(void) {
  RUN(store_and_load);
  RUN(folders_are_made_private);
  RUN(damaged_files);
  RUN(folder_in_place_of_a_file);
  RUN(trust_takes_what_it_is_told_to);
  RUN(unusable_folders);
  RUN(read_only_folder);
  RUN(folder_goes_away);
  RUN(full_disk);
  RUN(eviction_keeps_the_bound);
  RUN(eviction_across_processes);
  RUN(what_is_not_ours_stays);
  RUN(leftovers_are_removed_when_old);
  RUN(locks_exclude_and_end);
  RUN(forked_children_hold_no_locks);
  RUN(mutual_exclusion);
  RUN(killed_writers);
  RUN(allocation_failures);
  return check_end();
}
