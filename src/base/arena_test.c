/* arena_test.c: bump allocation, its alignment, growth, reuse and failure. */
#include "base/arena.h"

#include "base/alloc.h"
#include "check.h"

TEST(aligned_and_disjoint) {
  ttpu_arena_t arena = {0};
  enum { COUNT = 2000 };
  unsigned char *parts[COUNT];
  size_t sizes[COUNT], used = 0;
  bool good = true;
  for (int i = 0; i < COUNT; i++) {
    sizes[i] = (size_t)(i * 37 % 400);
    parts[i] = ttpu_arena_alloc(&arena, sizes[i]);
    good &= parts[i] && (uintptr_t)parts[i] % 16 == 0;
    if (!parts[i]) break;
    memset(parts[i], i & 255, sizes[i]);
    used += (sizes[i] + 15) / 16 * 16;
  }
  CHECK(good);
  CHECK_INT(arena.used, used);
  for (int i = 0; good && i < COUNT; i++)
    for (size_t k = 0; k < sizes[i]; k++) good &= parts[i][k] == (i & 255);
  CHECK(good);
  char *copy = ttpu_arena_copy(&arena, "copied", 7);
  CHECK_STR(copy, "copied");
  ttpu_arena_deinit(&arena);
  CHECK(!arena.head && !arena.used);
}

static void fill(ttpu_arena_t *arena) {
  bool good = true;
  for (int i = 0; i < 100; i++) good &= ttpu_arena_alloc(arena, 10000) != NULL;
  CHECK(good);
}

/* Filled to the same size again and again, an arena stops asking for memory. */
TEST(reset_keeps_a_block) {
  ttpu_arena_t arena = {0};
  for (int round = 0; round < 4; round++) {
    fill(&arena);
    ttpu_arena_reset(&arena);
    CHECK_INT(arena.used, 0);
  }
  ttpu_alloc_fail_at(0);
  fill(&arena);
  ttpu_alloc_fail_at(-1);
  ttpu_arena_reset(&arena);
  ttpu_arena_deinit(&arena);
}

TEST(larger_than_a_block) {
  ttpu_arena_t arena = {0};
  char *big = ttpu_arena_alloc(&arena, 1 << 20);
  CHECK(big);
  if (big) big[0] = big[(1 << 20) - 1] = 1;
  ttpu_arena_deinit(&arena);
}

TEST(failed_allocation) {
  ttpu_arena_t arena = {0};
  ttpu_alloc_fail_at(0);
  CHECK(!ttpu_arena_alloc(&arena, 8));
  ttpu_alloc_fail_at(1);
  char *kept = ttpu_arena_copy(&arena, "kept", 5);
  CHECK(!ttpu_arena_alloc(&arena, 1 << 20));
  ttpu_alloc_fail_at(-1);
  CHECK_STR(kept, "kept");
  CHECK(ttpu_arena_alloc(&arena, 1 << 20));
  ttpu_arena_deinit(&arena);
}

int main(void) {
  RUN(aligned_and_disjoint);
  RUN(reset_keeps_a_block);
  RUN(larger_than_a_block);
  RUN(failed_allocation);
  return check_end();
}
