/* map_test.c: the map against a plain array, with keys that collide on purpose. */
#include "base/map.h"

#include "base/alloc.h"
#include "check.h"

enum { KEYS = 512 };

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

/* Few distinct low parts: long probe sequences that wrap around the end of the table. */
static ttpu_hash_t colliding_key(int i) {
  return (ttpu_hash_t){(uint64_t)(i % 7) * 0x1111111111111111u - 3, (uint64_t)i};
}
static ttpu_hash_t mixed_key(int i) { return (ttpu_hash_t){ttpu_hash_mix((uint64_t)i), (uint64_t)i}; }

static void against_array(ttpu_hash_t (*key)(int), int rounds) {
  static int values[KEYS + 1];
  void *reference[KEYS] = {0};
  size_t count = 0;
  ttpu_map_t map = {0};
  bool same = true;
  for (int round = 0; round < rounds; round++) {
    const int i = (int)(next_random() % KEYS);
    if (next_random() % 3) {
      void *value = &values[next_random() % KEYS];
      if (!CHECK_OK(ttpu_map_put(&map, key(i), value))) break;
      count += !reference[i];
      reference[i] = value;
    } else {
      same &= ttpu_map_remove(&map, key(i)) == reference[i];
      count -= reference[i] != NULL;
      reference[i] = NULL;
    }
    same &= map.count == count;
    if (round % 97 == 0)
      for (int k = 0; k < KEYS; k++) same &= ttpu_map_find(&map, key(k)) == reference[k];
  }
  CHECK(same);
  size_t cursor = 0, seen = 0;
  ttpu_hash_t found;
  void *value;
  while (ttpu_map_next(&map, &cursor, &found, &value)) {
    same &= found.hi < KEYS && reference[found.hi] == value;
    seen++;
  }
  CHECK(same);
  CHECK_INT(seen, count);
  ttpu_map_deinit(&map);
  CHECK(!map.count && !ttpu_map_find(&map, key(0)));
}

TEST(random_operations) {
  against_array(mixed_key, 20000);
  against_array(colliding_key, 4000);
}

TEST(empty_map) {
  ttpu_map_t map = {0};
  size_t cursor = 0;
  CHECK(!ttpu_map_find(&map, mixed_key(1)));
  CHECK(!ttpu_map_remove(&map, mixed_key(1)));
  CHECK(!ttpu_map_next(&map, &cursor, NULL, NULL));
  ttpu_map_deinit(&map);
}

TEST(failed_growth_changes_nothing) {
  ttpu_map_t map = {0};
  int value, put = 0;
  ttpu_alloc_fail_at(0);
  CHECK_FAILS(ttpu_map_put(&map, mixed_key(0), &value), TTPU_RESOURCE_EXHAUSTED, "memory");
  ttpu_alloc_fail_at(1);
  ttpu_status_t *status = NULL;
  while (!status && put < KEYS) {
    status = ttpu_map_put(&map, mixed_key(put), &value);
    if (!status) put++;
  }
  ttpu_alloc_fail_at(-1);
  CHECK_FAILS(status, TTPU_RESOURCE_EXHAUSTED, "memory");
  CHECK_INT(map.count, put);
  CHECK(!ttpu_map_find(&map, mixed_key(put)));
  for (int i = 0; i < put; i++) CHECK(ttpu_map_find(&map, mixed_key(i)) == &value);
  ttpu_alloc_fail_at(0);
  CHECK_OK(ttpu_map_put(&map, mixed_key(0), &put)); /* replacing needs no memory */
  ttpu_alloc_fail_at(-1);
  CHECK(ttpu_map_find(&map, mixed_key(0)) == &put);
  ttpu_map_deinit(&map);
}

int main(void) {
  RUN(empty_map);
  RUN(random_operations);
  RUN(failed_growth_changes_nothing);
  return check_end();
}
