/* alloc.c: see alloc.h. The fault counters are relaxed atomics: one load on the normal path. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Atomic bool armed;
static _Atomic int64_t left, made;

static bool must_fail(void) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) return false;
  atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
  return atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) == 0;
}

void *ttpu_alloc(size_t bytes) { return must_fail() ? NULL : malloc(bytes ? bytes : 1); }

void *ttpu_alloc_zero(size_t count, size_t bytes) {
  return must_fail() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

void *ttpu_alloc_resize(void *ptr, size_t bytes) { return must_fail() ? NULL : realloc(ptr, bytes ? bytes : 1); }

char *ttpu_alloc_string(const char *text) {
  const size_t n = strlen(text) + 1;
  char *copy = ttpu_alloc(n);
  return copy ? memcpy(copy, text, n) : NULL;
}

void ttpu_free(void *ptr) { free(ptr); }

void ttpu_alloc_fail_at(int64_t n) {
  atomic_store(&left, n);
  atomic_store(&made, 0);
  atomic_store(&armed, n >= 0);
}

int64_t ttpu_alloc_count(void) { return atomic_exchange(&made, 0); }
