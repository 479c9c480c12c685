/* memory_test.c: the memory tier's order of use, its bound, and the references it holds. */
#include "compile/memory.h"

#include <stdlib.h>

#include "check.h"
#include "compile/pjrt_stub.h"

static ttpu_hash_t key_of(int i) { return ttpu_hash_words((uint64_t[]){(uint64_t)i}, 1); }

static ttpu_executable_t *make(int i) {
  char text[16];
  ttpu_executable_t *executable = NULL;
  snprintf(text, sizeof text, "%d", i);
  CHECK_OK(stub_make(0, text, strlen(text), &executable));
  return executable;
}

/* Adds program |i|, whose only reference the tier then has; returns which one was evicted, or -1. */
static int add(ttpu_memory_t *memory, int i) {
  ttpu_executable_t *executable = make(i), *evicted;
  CHECK_OK(ttpu_memory_add(memory, key_of(i), executable, &evicted));
  ttpu_executable_release(executable);
  const int which = evicted ? atoi(evicted->text) : -1;
  ttpu_executable_release(evicted);
  return which;
}

static bool has(ttpu_memory_t *memory, int i) {
  ttpu_executable_t *executable = ttpu_memory_find(memory, key_of(i));
  return executable && atoi(executable->text) == i;
}

TEST(the_least_recently_used_leaves) {
  ttpu_memory_t memory;
  ttpu_memory_init(&memory, 3);
  CHECK(!has(&memory, 1));
  CHECK_INT(add(&memory, 1), -1);
  CHECK_INT(add(&memory, 2), -1);
  CHECK_INT(add(&memory, 3), -1);
  CHECK(has(&memory, 1)); /* now 2 is the oldest */
  CHECK_INT(add(&memory, 4), 2);
  CHECK_INT(add(&memory, 5), 3);
  CHECK(has(&memory, 1) && has(&memory, 4) && has(&memory, 5) && !has(&memory, 2) && !has(&memory, 3));
  CHECK_INT(add(&memory, 6), 1);
  CHECK_INT(ttpu_memory_count(&memory), 3);
  CHECK_INT(stub.live, 3);
  ttpu_memory_deinit(&memory);
  CHECK_INT(stub.live, 0);
}

TEST(small_bounds) {
  ttpu_memory_t memory;
  ttpu_memory_init(&memory, 0);
  CHECK_INT(add(&memory, 1), -1);
  CHECK(!has(&memory, 1));
  CHECK_INT(stub.live, 0);
  ttpu_memory_deinit(&memory);
  ttpu_memory_init(&memory, 1);
  for (int i = 0; i < 50; i++) CHECK_INT(add(&memory, i), i - 1);
  CHECK(has(&memory, 49));
  ttpu_memory_deinit(&memory);
  CHECK_INT(stub.live, 0);
}

TEST(failed_allocations_keep_nothing) {
  ttpu_memory_t memory;
  ttpu_memory_init(&memory, 100);
  for (int i = 0; i < 40; i++) {
    ttpu_executable_t *executable = make(i), *evicted;
    ttpu_alloc_fail_at(i % 3);
    ttpu_status_t *status = ttpu_memory_add(&memory, key_of(i), executable, &evicted);
    ttpu_alloc_fail_at(-1);
    CHECK(has(&memory, i) == !status);
    CHECK_INT(executable->refs, status ? 1 : 2);
    CHECK(!evicted);
    ttpu_status_free(status);
    ttpu_executable_release(executable);
  }
  CHECK_INT(stub.live, ttpu_memory_count(&memory));
  CHECK(stub.live > 10 && stub.live < 40);
  ttpu_memory_deinit(&memory);
  CHECK_INT(stub.live, 0);
}

int main(void) {
  RUN(the_least_recently_used_leaves);
  RUN(small_bounds);
  RUN(failed_allocations_keep_nothing);
  return check_end();
}
