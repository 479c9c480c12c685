/* cache_threads_test.c: many threads on one cache; made for the thread sanitizer. */
#include <pthread.h>
#include <stdlib.h>

#include "check.h"
#include "compile/cache.h"
#include "compile/pjrt_stub.h"
#include "temp.h"

enum { THREADS = 8 };

static char folder[TEMP_PATH];
static struct ttpu_client client;
static ttpu_cache_t *cache;
static pthread_barrier_t barrier;
static _Atomic int emits, failures, tiers[3], wrong;

typedef struct {
  int thread;
  ttpu_executable_t *executable;
} work_t;

typedef struct {
  int i;
  char text[32];
} program_t;

static ttpu_status_t *emit(void *ctx, const char **out_text, size_t *out_size) {
  program_t *program = ctx;
  emits++;
  snprintf(program->text, sizeof program->text, "program %d", program->i);
  *out_text = program->text;
  *out_size = strlen(program->text);
  return NULL;
}

static ttpu_executable_t *get(int i) {
  program_t program = {.i = i};
  ttpu_executable_t *executable = NULL;
  ttpu_tier_e tier;
  char expected[32];
  snprintf(expected, sizeof expected, "program %d", i);
  const ttpu_hash_t key = ttpu_hash_words((uint64_t[]){(uint64_t)i}, 1);
  ttpu_status_t *status = ttpu_cache_get(cache, key, i & 1, "x", emit, &program, &executable, &tier);
  if (status) {
    failures++;
    wrong += executable != NULL || !strstr(ttpu_status_message(status), "stumbled");
  } else {
    tiers[tier]++;
    wrong += !executable || strcmp(executable->text, expected);
  }
  ttpu_status_free(status);
  return executable;
}

static void *one_key(void *ctx) {
  work_t *work = ctx;
  pthread_barrier_wait(&barrier);
  work->executable = get(1);
  return NULL;
}

/* Evictions, disk hits, compiles, statistics and notes at once. */
static void *many_keys(void *ctx) {
  const work_t *work = ctx;
  unsigned seed = (unsigned)work->thread;
  pthread_barrier_wait(&barrier);
  for (int n = 0; n < 150; n++) {
    ttpu_executable_release(get(2 + rand_r(&seed) % 20));
    if (n % 10 == 0) {
      ttpu_cache_stats_t stats;
      ttpu_cache_stats(cache, &stats);
      ttpu_cache_compile_t list[4];
      ttpu_cache_compiles(cache, list, 4);
      const ttpu_hash_t key = {(uint64_t)n, 0};
      char text[64];
      const int size = snprintf(text, sizeof text, "%d %*d", n, n % 30, 0);
      ttpu_status_free(ttpu_cache_note_store(cache, key, text, (size_t)size));
      void *data = NULL;
      size_t found = 0;
      ttpu_status_t *status = ttpu_cache_note_load(cache, key, &data, &found);
      wrong += status || found != (size_t)size || memcmp(data, text, found);
      ttpu_status_free(status);
      ttpu_free(data);
    }
  }
  return NULL;
}

static void run_threads(void *(*body)(void *), work_t *works) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int t = 0; t < THREADS; t++) {
    works[t] = (work_t){.thread = t};
    pthread_create(&threads[t], NULL, body, &works[t]);
  }
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  pthread_barrier_destroy(&barrier);
}

static void begin(int64_t memory_programs) {
  temp_make(folder);
  client = stub_client();
  emits = failures = wrong = tiers[0] = tiers[1] = tiers[2] = 0;
  *stub.compiles = 0;
  const ttpu_cache_options_t options = {
      .folder = folder, .disk_bytes = 1 << 20, .memory_programs = memory_programs};
  CHECK_OK(ttpu_cache_create(&client, &options, &cache));
}

static void end(void) {
  ttpu_cache_free(cache);
  temp_remove(folder);
  CHECK_INT(wrong, 0);
  CHECK_INT(stub.live, 0);
}

TEST(threads_compile_once) {
  for (int bound = 0; bound < 2; bound++) { /* also when nothing is kept: who waited still gets it */
    work_t works[THREADS];
    begin(bound);
    stub.compile_ms = 60;
    run_threads(one_key, works);
    CHECK_INT(*stub.compiles, 1);
    CHECK_INT(emits, 1);
    CHECK_INT(tiers[TTPU_TIER_COMPILED], 1);
    CHECK_INT(tiers[TTPU_TIER_COMPILED] + tiers[TTPU_TIER_MEMORY] + tiers[TTPU_TIER_DISK], THREADS);
    ttpu_cache_stats_t stats;
    ttpu_cache_stats(cache, &stats);
    CHECK_INT(stats.compiles + stats.memory_hits + stats.disk_hits, THREADS);
    for (int t = 0; t < THREADS; t++) {
      if (bound) CHECK(works[t].executable == works[0].executable);
      ttpu_executable_release(works[t].executable);
    }
    end();
  }
}

/* All who wait for a failing compile are told of the failure; later calls try again. */
TEST(threads_share_a_failure) {
  work_t works[THREADS];
  begin(10);
  stub.compile_ms = 60;
  stub.compile_failures = 1;
  run_threads(one_key, works);
  CHECK(failures >= 1);
  CHECK_INT(failures + tiers[0] + tiers[1] + tiers[2], THREADS);
  CHECK_INT(*stub.compiles, tiers[TTPU_TIER_COMPILED] + 1);
  for (int t = 0; t < THREADS; t++) ttpu_executable_release(works[t].executable);
  ttpu_executable_t *later = get(1);
  CHECK(later);
  ttpu_executable_release(later);
  end();
}

TEST(threads_on_many_keys) {
  work_t works[THREADS];
  begin(5);
  stub.compile_ms = 1;
  run_threads(many_keys, works);
  CHECK_INT(failures, 0);
  CHECK_INT(*stub.compiles, 20); /* what memory evicts comes back from disk */
  ttpu_cache_stats_t stats;
  ttpu_cache_stats(cache, &stats);
  CHECK_INT(stats.compiles, 20);
  CHECK_INT(stats.compiles + stats.disk_hits + stats.memory_hits, THREADS * 150);
  CHECK(stats.memory_programs <= 5 && stats.disk_hits > 0);
  CHECK_INT(stats.disk_errors + stats.rejected_files, 0);
  end();
}

int main(void) {
  stub_init();
  RUN(threads_compile_once);
  RUN(threads_share_a_failure);
  RUN(threads_on_many_keys);
  return check_end();
}
