/* cache_test.c: the whole cache over a stub compiler: tiers, keys, mending, notes, processes that share a folder. */
#include "compile/cache.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "compile/disk.h"
#include "compile/pjrt_stub.h"
#include "temp.h"

static char folder[TEMP_PATH];
static struct ttpu_client client;
static int emits;

static void begin(void) {
  temp_make(folder);
  client = stub_client();
  emits = 0;
  *stub.compiles = 0;
}

static void end(void) {
  temp_remove(folder);
  CHECK_INT(stub.live, 0);
  CHECK_INT(client.refs, 1);
}

static ttpu_cache_t *open_cache(const char *path) {
  const ttpu_cache_options_t options = {.folder = path, .disk_bytes = 1 << 20, .memory_programs = 100};
  ttpu_cache_t *cache = NULL;
  CHECK_OK(ttpu_cache_create(&client, &options, &cache));
  return cache;
}

static ttpu_hash_t key_of(int i) { return ttpu_hash_words((uint64_t[]){(uint64_t)i, 5}, 2); }

typedef struct {
  int i;
  bool fails;
  char text[32];
} program_t;

static ttpu_status_t *emit(void *ctx, const char **out_text, size_t *out_size) {
  program_t *program = ctx;
  emits++;
  if (program->fails) return TTPU_ERROR(UNIMPLEMENTED, "cannot lower %d", program->i);
  snprintf(program->text, sizeof program->text, "program %d", program->i);
  *out_text = program->text;
  *out_size = strlen(program->text);
  return NULL;
}

/* The tier that program |i| came from; -1 when the cache gave a wrong one or none. */
static int get_on(ttpu_cache_t *cache, int i, int device) {
  program_t program = {.i = i};
  ttpu_executable_t *executable = NULL;
  ttpu_tier_e tier;
  char expected[32];
  snprintf(expected, sizeof expected, "program %d", i);
  if (!CHECK_OK(ttpu_cache_get(cache, key_of(i), device, "first sight", emit, &program, &executable, &tier))) return -1;
  const bool right = executable && !strcmp(executable->text, expected);
  ttpu_executable_release(executable);
  return right ? (int)tier : -1;
}

static int get(ttpu_cache_t *cache, int i) { return get_on(cache, i, 0); }

static ttpu_cache_stats_t stats_of(ttpu_cache_t *cache) {
  ttpu_cache_stats_t stats;
  ttpu_cache_stats(cache, &stats);
  return stats;
}

/* --- tiers ------------------------------------------------------------------------------------------------------- */

TEST(compiled_then_memory_then_disk) {
  begin();
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  CHECK_INT(get(cache, 1), TTPU_TIER_MEMORY);
  CHECK_INT(get(cache, 2), TTPU_TIER_COMPILED);
  ttpu_cache_stats_t stats = stats_of(cache);
  CHECK_INT(stats.compiles, 2);
  CHECK_INT(stats.memory_hits, 1);
  CHECK_INT(stats.disk_hits, 0);
  CHECK_INT(stats.memory_programs, 2);
  CHECK_INT(stats.disk_files, 2);
  CHECK_INT(stats.disk_errors + stats.rejected_files + stats.evictions, 0);
  CHECK_STR(stats.disk_status, "");
  CHECK_INT(temp_count(folder, ".program", NULL), 2);
  CHECK_INT(temp_count(folder, "", NULL), 2); /* no locks, nothing half written */
  ttpu_cache_free(cache);
  cache = open_cache(folder); /* as another process would */
  CHECK_INT(get(cache, 1), TTPU_TIER_DISK);
  CHECK_INT(get(cache, 1), TTPU_TIER_MEMORY);
  stats = stats_of(cache);
  CHECK_INT(stats.disk_hits, 1);
  CHECK_INT(stats.compiles, 0);
  CHECK(stats.load_nanoseconds > 0);
  CHECK_INT(emits, 2);
  CHECK_INT(*stub.compiles, 2);
  ttpu_cache_free(cache);
  end();
}

/* A lowering that was mended must not run programs that it wrote before. */
TEST(another_lowering_is_a_miss) {
  begin();
  const char *const lowerings[] = {"one", "two", "one", NULL, ""};
  const int programs[] = {TTPU_TIER_COMPILED, TTPU_TIER_COMPILED, TTPU_TIER_DISK, TTPU_TIER_COMPILED, TTPU_TIER_DISK};
  for (int i = 0; i < 5; i++) {
    const ttpu_cache_options_t options = {
        .folder = folder, .disk_bytes = 1 << 20, .memory_programs = 10, .lowering = lowerings[i]};
    ttpu_cache_t *cache;
    CHECK_OK(ttpu_cache_create(&client, &options, &cache));
    CHECK_INT(get(cache, 1), programs[i]);
    void *data = NULL;
    size_t size;
    ttpu_status_t *status = ttpu_cache_note_load(cache, key_of(1), &data, &size);
    CHECK_INT(ttpu_status_code(status), programs[i] == TTPU_TIER_DISK ? TTPU_OK : TTPU_NOT_FOUND);
    ttpu_status_free(status);
    ttpu_free(data);
    CHECK_OK(ttpu_cache_note_store(cache, key_of(1), "note", 4));
    ttpu_cache_free(cache);
  }
  end();
}

TEST(without_a_disk) {
  begin();
  ttpu_cache_t *cache = open_cache(NULL);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  CHECK_INT(get(cache, 1), TTPU_TIER_MEMORY);
  CHECK(*stats_of(cache).disk_status);
  ttpu_cache_free(cache);
  CHECK_INT(temp_count(folder, "", NULL), 0);
  end();
}

TEST(the_memory_bound) {
  begin();
  const ttpu_cache_options_t options = {.folder = folder, .disk_bytes = 1 << 20, .memory_programs = 3};
  ttpu_cache_t *cache;
  CHECK_OK(ttpu_cache_create(&client, &options, &cache));
  for (int i = 0; i < 10; i++) {
    CHECK_INT(get(cache, i), TTPU_TIER_COMPILED);
    CHECK(stub.live <= 3);
  }
  CHECK_INT(get(cache, 9), TTPU_TIER_MEMORY);
  CHECK_INT(get(cache, 0), TTPU_TIER_DISK);
  CHECK_INT(stats_of(cache).memory_programs, 3);
  CHECK_INT(stats_of(cache).evictions, 8);
  ttpu_cache_free(cache);
  end();
}

/* What the caller holds outlives its eviction and the cache. */
TEST(results_are_retained) {
  begin();
  const ttpu_cache_options_t options = {.memory_programs = 1};
  ttpu_cache_t *cache;
  program_t program = {.i = 1};
  ttpu_executable_t *held = NULL;
  ttpu_tier_e tier;
  CHECK_OK(ttpu_cache_create(&client, &options, &cache));
  CHECK_OK(ttpu_cache_get(cache, key_of(1), 0, NULL, emit, &program, &held, &tier));
  CHECK_INT(get(cache, 2), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  CHECK(held && !strcmp(held->text, "program 1"));
  CHECK_INT(stub.live, 1);
  ttpu_executable_release(held);
  end();
}

TEST(history) {
  begin();
  ttpu_cache_t *cache = open_cache(NULL);
  ttpu_cache_compile_t list[300];
  CHECK_INT(ttpu_cache_compiles(cache, list, 300), 0);
  for (int i = 0; i < 290; i++) {
    program_t program = {.i = i};
    ttpu_executable_t *executable = NULL;
    ttpu_tier_e tier;
    char why[400];
    snprintf(why, sizeof why, "why %d %*d", i, 300, 0); /* longer than what is kept */
    CHECK_OK(ttpu_cache_get(cache, key_of(i), 0, why, emit, &program, &executable, &tier));
    ttpu_executable_release(executable);
  }
  CHECK_INT(ttpu_cache_compiles(cache, list, 300), 256);
  CHECK(!strncmp(list[0].why, "why 289 ", 8) && !strncmp(list[255].why, "why 34 ", 7));
  CHECK(strlen(list[0].key) == 32 && strcmp(list[0].key, list[1].key) && list[0].milliseconds >= 0);
  CHECK_INT(ttpu_cache_compiles(cache, list, 2), 2);
  CHECK(!strncmp(list[1].why, "why 288 ", 8));
  CHECK_INT(ttpu_cache_compiles(cache, list, 0), 0);
  ttpu_cache_free(cache);
  end();
}

/* --- keys -------------------------------------------------------------------------------------------------------- */

/* With what |change| did to client or environment, program 1 must be compiled anew; without it, it is on disk. */
#define CHANGES_THE_KEY(change, undo)                                    \
  do {                                                                   \
    change;                                                              \
    ttpu_cache_t *cache_ = open_cache(folder);                           \
    CHECK_INT(get(cache_, 1), TTPU_TIER_COMPILED);                       \
    ttpu_cache_free(cache_);                                             \
    undo;                                                                \
    cache_ = open_cache(folder);                                         \
    CHECK_INT(get(cache_, 1), TTPU_TIER_DISK);                           \
    ttpu_cache_free(cache_);                                             \
  } while (0)

/* All zeros but for |first| and |last|. */
static void write_library(const char *path, size_t size, char first, char last) {
  char *bytes = calloc(size, 1);
  bytes[0] = first;
  bytes[size - 1] = last;
  FILE *file = fopen(path, "w");
  CHECK_INT(fwrite(bytes, 1, size, file), size);
  fclose(file);
  free(bytes);
}

TEST(keys_hold_all_that_matters) {
  begin();
  unsetenv("XLA_FLAGS");
  unsetenv("LIBTPU_INIT_ARGS");
  char library[TEMP_PATH + 16];
  snprintf(library, sizeof library, "%s/plugin.so", folder);
  client.plugin_path = library;
  enum { LARGE = 1 << 20 };
  write_library(library, LARGE, 1, 0);
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  CHANGES_THE_KEY(client.platform = "tpu", client.platform = "cpu");
  CHANGES_THE_KEY(client.platform_version = "2", client.platform_version = "1");
  CHANGES_THE_KEY(client.device_kinds[0] = "other core", client.device_kinds[0] = "core");
  CHANGES_THE_KEY(client.host_features = "avx", client.host_features = "sse");
  CHANGES_THE_KEY(client.minor++, client.minor--);
  CHANGES_THE_KEY(client.major++, client.major--);
  CHANGES_THE_KEY(setenv("XLA_FLAGS", "--xla_fast=1", 1), unsetenv("XLA_FLAGS"));
  CHANGES_THE_KEY(setenv("LIBTPU_INIT_ARGS", "x", 1), unsetenv("LIBTPU_INIT_ARGS"));
  CHANGES_THE_KEY(write_library(library, LARGE, 2, 0), write_library(library, LARGE, 1, 0));
  CHANGES_THE_KEY(write_library(library, LARGE, 1, 2), write_library(library, LARGE, 1, 0));
  CHANGES_THE_KEY(write_library(library, LARGE + 1, 1, 0), write_library(library, LARGE, 1, 0));
  CHANGES_THE_KEY(client.plugin_path = "/nowhere", client.plugin_path = library);
  /* A text that moves from one field to the next is another key, too. */
  CHANGES_THE_KEY((client.platform = "cpu1", client.platform_version = ""),
                  (client.platform = "cpu", client.platform_version = "1"));
  end();
}

TEST(devices) {
  begin();
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_INT(get_on(cache, 1, 0), TTPU_TIER_COMPILED);
  CHECK_INT(get_on(cache, 1, 1), TTPU_TIER_MEMORY); /* portable, of one kind: one program serves both */
  program_t program = {.i = 1};
  ttpu_executable_t *executable;
  ttpu_tier_e tier;
  CHECK_FAILS(ttpu_cache_get(cache, key_of(1), 2, NULL, emit, &program, &executable, &tier), TTPU_INVALID_ARGUMENT,
              "device 2 does not exist");
  CHECK_FAILS(ttpu_cache_get(cache, key_of(1), -1, NULL, emit, &program, &executable, &tier), TTPU_INVALID_ARGUMENT,
              "device -1");
  CHECK(!executable);
  ttpu_cache_free(cache);
  client.traits.portable_executables = false;
  cache = open_cache(folder);
  CHECK_INT(get_on(cache, 1, 0), TTPU_TIER_COMPILED);
  CHECK_INT(get_on(cache, 1, 1), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  end();
}

/* --- failures ---------------------------------------------------------------------------------------------------- */

TEST(failures_pass_through_and_are_not_kept) {
  begin();
  ttpu_cache_t *cache = open_cache(folder);
  program_t program = {.i = 1, .fails = true};
  ttpu_executable_t *executable;
  ttpu_tier_e tier;
  CHECK_FAILS(ttpu_cache_get(cache, key_of(1), 0, "x", emit, &program, &executable, &tier), TTPU_UNIMPLEMENTED,
              "cannot lower 1");
  CHECK(!executable);
  stub.compile_failures = 1;
  program.fails = false;
  CHECK_FAILS(ttpu_cache_get(cache, key_of(1), 0, "x", emit, &program, &executable, &tier), TTPU_INTERNAL, "stumbled");
  CHECK(!executable);
  CHECK_INT(temp_count(folder, "", NULL), 0); /* locks are let go on failure, too */
  CHECK_INT(stats_of(cache).compiles, 0);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  end();
}

TEST(a_file_the_plugin_refuses_is_replaced) {
  begin();
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  stub.refuses_files = true;
  cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  CHECK_INT(stats_of(cache).rejected_files, 1);
  ttpu_cache_free(cache);
  stub.refuses_files = false;
  cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_DISK);
  ttpu_cache_free(cache);
  end();
}

TEST(a_damaged_file_is_replaced) {
  begin();
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  char name[TEMP_PATH], path[2 * TEMP_PATH + 1];
  CHECK_INT(temp_count(folder, ".program", name), 1);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  CHECK_INT(truncate(path, 70), 0);
  cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  CHECK_INT(stats_of(cache).rejected_files, 1);
  CHECK_INT(stats_of(cache).disk_errors, 0);
  ttpu_cache_free(cache);
  cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_DISK);
  ttpu_cache_free(cache);
  end();
}

TEST(a_plugin_that_cannot_serialize) {
  begin();
  stub.cannot_serialize = true;
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  CHECK_INT(get(cache, 2), TTPU_TIER_COMPILED);
  CHECK_INT(get(cache, 1), TTPU_TIER_MEMORY);
  CHECK_STR(stats_of(cache).disk_status, "the plugin cannot serialize programs");
  CHECK_INT(stats_of(cache).disk_errors, 0);
  CHECK_INT(temp_count(folder, "", NULL), 0);
  ttpu_cache_free(cache);
  stub.cannot_serialize = false;
  end();
}

TEST(unusable_folder) {
  begin();
  char path[TEMP_PATH + 8];
  snprintf(path, sizeof path, "%s/file", folder);
  fclose(fopen(path, "w"));
  ttpu_cache_t *cache = open_cache(path);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  CHECK_INT(get(cache, 1), TTPU_TIER_MEMORY);
  CHECK(strstr(stats_of(cache).disk_status, "Not a directory"));
  ttpu_cache_free(cache);
  end();
}

TEST(full_disk) {
  begin();
  stub.padding = 100000;
  ttpu_cache_t *cache = open_cache(folder);
  struct rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
  const int first = get(cache, 1), second = get(cache, 2), again = get(cache, 1);
  setrlimit(RLIMIT_FSIZE, &old);
  CHECK_INT(first, TTPU_TIER_COMPILED);
  CHECK_INT(second, TTPU_TIER_COMPILED);
  CHECK_INT(again, TTPU_TIER_MEMORY);
  CHECK_INT(stats_of(cache).disk_errors, 1); /* the second program was not even tried */
  CHECK(strstr(stats_of(cache).disk_status, "cannot write files"));
  CHECK_INT(temp_count(folder, "", NULL), 0);
  ttpu_cache_free(cache);
  stub.padding = 0;
  end();
}

/* --- notes ------------------------------------------------------------------------------------------------------- */

static void note_is(ttpu_cache_t *cache, int i, const char *expected, size_t size) {
  void *data = NULL;
  size_t found;
  if (CHECK_OK(ttpu_cache_note_load(cache, key_of(i), &data, &found))) {
    CHECK_INT(found, size);
    CHECK(found == size && !memcmp(data, expected, size));
  }
  ttpu_free(data);
}

TEST(notes) {
  begin();
  void *data;
  size_t size;
  ttpu_cache_t *cache = open_cache(folder);
  CHECK_FAILS(ttpu_cache_note_load(cache, key_of(1), &data, &size), TTPU_NOT_FOUND, "note");
  CHECK(!data && !size);
  CHECK_OK(ttpu_cache_note_store(cache, key_of(1), "a\0b", 3));
  CHECK_OK(ttpu_cache_note_store(cache, key_of(2), "", 0));
  note_is(cache, 1, "a\0b", 3);
  note_is(cache, 2, "", 0);
  CHECK_OK(ttpu_cache_note_store(cache, key_of(1), "longer than before", 18));
  ttpu_cache_free(cache);
  client.platform = "tpu"; /* a note holds on every platform */
  cache = open_cache(folder);
  note_is(cache, 1, "longer than before", 18);
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED); /* a program of the same key is something else */
  note_is(cache, 1, "longer than before", 18);
  char name[TEMP_PATH], path[2 * TEMP_PATH + 1];
  CHECK_OK(ttpu_cache_note_store(cache, key_of(1), "x", 1));
  temp_count(folder, ".note", name);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  CHECK_INT(truncate(path, 66), 0);
  int missing = 0;
  for (int i = 1; i <= 2; i++) {
    ttpu_status_t *status = ttpu_cache_note_load(cache, key_of(i), &data, &size);
    missing += ttpu_status_code(status) == TTPU_NOT_FOUND;
    ttpu_status_free(status);
    ttpu_free(data);
  }
  CHECK_INT(missing, 1);
  ttpu_cache_free(cache);
  cache = open_cache(NULL);
  CHECK_OK(ttpu_cache_note_store(cache, key_of(1), "x", 1));
  CHECK_FAILS(ttpu_cache_note_load(cache, key_of(1), &data, &size), TTPU_NOT_FOUND, "note");
  ttpu_cache_free(cache);
  end();
}

TEST(dumps) {
  begin();
  char dump[TEMP_PATH + 8], name[TEMP_PATH], path[2 * TEMP_PATH + 16], text[64] = "";
  snprintf(dump, sizeof dump, "%s/dump", folder);
  ttpu_cache_options_t options = {.memory_programs = 10, .dump_folder = dump};
  ttpu_cache_t *cache;
  CHECK_OK(ttpu_cache_create(&client, &options, &cache));
  CHECK_INT(get(cache, 7), TTPU_TIER_COMPILED);
  CHECK_INT(temp_count(dump, ".mlir", name), 1);
  ttpu_cache_compile_t compiled;
  CHECK_INT(ttpu_cache_compiles(cache, &compiled, 1), 1);
  CHECK(!strncmp(name, compiled.key, 32));
  snprintf(path, sizeof path, "%s/%s", dump, name);
  FILE *file = fopen(path, "r");
  CHECK(file && fgets(text, sizeof text, file));
  if (file) fclose(file);
  CHECK_STR(text, "program 7");
  ttpu_cache_free(cache);
  options.dump_folder = path; /* a file: nothing is dumped, all else works */
  CHECK_OK(ttpu_cache_create(&client, &options, &cache));
  CHECK_INT(get(cache, 7), TTPU_TIER_COMPILED);
  ttpu_cache_free(cache);
  end();
}

/* --- processes --------------------------------------------------------------------------------------------------- */

/* N processes that want the same programs at the same time, each in another order: every program is compiled once. */
TEST(processes_compile_once) {
  enum { PROCESSES = 6, KEYS = 5 };
  begin();
  stub.compile_ms = 15;
  for (int p = 0; p < PROCESSES; p++)
    if (!fork()) {
      check_failed_ = 0;
      ttpu_cache_t *cache = open_cache(folder);
      for (int i = 0; i < KEYS; i++) CHECK(get(cache, (i + p * 2) % KEYS) >= 0);
      ttpu_cache_free(cache);
      _exit(check_failed_ != 0);
    }
  for (int p = 0, status; p < PROCESSES; p++) CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
  stub.compile_ms = 0;
  CHECK_INT(*stub.compiles, KEYS);
  CHECK_INT(temp_count(folder, ".program", NULL), KEYS);
  CHECK_INT(temp_count(folder, "", NULL), KEYS);
  end();
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A process killed while it compiles: whoever waits for it goes on at once and compiles. */
TEST(a_killed_compiler_is_not_waited_for) {
  begin();
  const pid_t child = fork();
  if (!child) {
    stub.compile_ms = 60000;
    ttpu_cache_t *cache = open_cache(folder);
    get(cache, 1);
    _exit(0);
  }
  for (int i = 0; i < 500 && !*stub.compiles; i++) usleep(10000);
  CHECK_INT(*stub.compiles, 1);
  CHECK_INT(temp_count(folder, ".lock", NULL), 1);
  const pid_t killer = fork();
  if (!killer) {
    usleep(150000);
    kill(child, SIGKILL);
    _exit(0);
  }
  ttpu_cache_t *cache = open_cache(folder);
  const int64_t start = now_ms();
  CHECK_INT(get(cache, 1), TTPU_TIER_COMPILED);
  const int64_t spent = now_ms() - start;
  CHECK(spent >= 100 && spent < 30000); /* it waited while the other one lived */
  waitpid(child, NULL, 0);
  waitpid(killer, NULL, 0);
  CHECK_INT(*stub.compiles, 2);
  CHECK_INT(temp_count(folder, "", NULL), 1);
  ttpu_cache_free(cache);
  end();
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* One process's life with the |n|th allocation failing: programs are right or refused for want of memory. */
static int64_t live_with_failure(int64_t n) {
  const ttpu_cache_options_t options = {.folder = folder, .disk_bytes = 1 << 20, .memory_programs = 2};
  ttpu_cache_t *cache = NULL;
  ttpu_alloc_fail_at(n);
  ttpu_status_t *status = ttpu_cache_create(&client, &options, &cache);
  bool good = ttpu_status_code(status) == (cache ? TTPU_OK : TTPU_RESOURCE_EXHAUSTED);
  ttpu_status_free(status);
  for (int i = 0; cache && i < 6; i++) {
    program_t program = {.i = i % 4};
    ttpu_executable_t *executable = NULL;
    ttpu_tier_e tier;
    char expected[32];
    snprintf(expected, sizeof expected, "program %d", i % 4);
    status = ttpu_cache_get(cache, key_of(i % 4), 0, "x", emit, &program, &executable, &tier);
    good &= status ? ttpu_status_code(status) == TTPU_RESOURCE_EXHAUSTED && !executable
                   : executable && !strcmp(executable->text, expected);
    ttpu_status_free(status);
    ttpu_executable_release(executable);
    void *data = NULL;
    size_t size;
    status = ttpu_cache_note_store(cache, key_of(i), expected, strlen(expected));
    good &= !status;
    ttpu_status_free(status);
    status = ttpu_cache_note_load(cache, key_of(i), &data, &size);
    good &= status ? !data : size == strlen(expected) && !memcmp(data, expected, size);
    ttpu_status_free(status);
    ttpu_free(data);
  }
  const int64_t requests = ttpu_alloc_count();
  ttpu_alloc_fail_at(-1);
  if (cache) good &= !stats_of(cache).rejected_files;
  ttpu_cache_free(cache);
  good &= stub.live == 0 && client.refs == 1;
  if (!CHECK(good)) fprintf(stderr, "with allocation %lld failing\n", (long long)n);
  return requests;
}

TEST(allocation_failures) {
  for (int warm = 0; warm < 2; warm++) { /* compiling, then with all of it on disk */
    int64_t requests = 1;
    for (int64_t n = 0; n <= requests; n++) {
      if (n == 0 || !warm) {
        if (n) temp_remove(folder);
        begin();
        if (warm) live_with_failure(1 << 20);
      }
      requests = live_with_failure(n);
    }
    CHECK(requests > 20);
    end();
  }
}

int main(void) {
  stub_init();
  RUN(compiled_then_memory_then_disk);
  RUN(another_lowering_is_a_miss);
  RUN(without_a_disk);
  RUN(the_memory_bound);
  RUN(results_are_retained);
  RUN(history);
  RUN(keys_hold_all_that_matters);
  RUN(devices);
  RUN(failures_pass_through_and_are_not_kept);
  RUN(a_file_the_plugin_refuses_is_replaced);
  RUN(a_damaged_file_is_replaced);
  RUN(a_plugin_that_cannot_serialize);
  RUN(unusable_folder);
  RUN(full_disk);
  RUN(notes);
  RUN(dumps);
  RUN(processes_compile_once);
  RUN(a_killed_compiler_is_not_waited_for);
  RUN(allocation_failures);
  return check_end();
}
