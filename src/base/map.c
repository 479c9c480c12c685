/* map.c: see map.h. The keys are well mixed hashes already, so their low bits are the home slot. */
#include "base/map.h"

#include "base/alloc.h"

struct ttpu_map_slot {
  ttpu_hash_t key;
  void *value; /* NULL: empty */
};

enum { FIRST_CAPACITY = 16 };

/* The slot that holds |key|, or the empty one where it would go. */
static size_t locate(const ttpu_map_t *map, ttpu_hash_t key) {
  const size_t mask = map->capacity - 1;
  size_t i = key.lo & mask;
  while (map->slots[i].value && !ttpu_hash_equal(map->slots[i].key, key)) i = (i + 1) & mask;
  return i;
}

void *ttpu_map_find(const ttpu_map_t *map, ttpu_hash_t key) {
  return map->capacity ? map->slots[locate(map, key)].value : NULL;
}

static ttpu_status_t *grow(ttpu_map_t *map) {
  ttpu_map_t bigger = {.capacity = map->capacity ? map->capacity * 2 : FIRST_CAPACITY, .count = map->count};
  bigger.slots = ttpu_alloc_zero(bigger.capacity, sizeof *bigger.slots);
  if (!bigger.slots) return TTPU_OUT_OF_HOST_MEMORY();
  for (size_t i = 0; i < map->capacity; i++)
    if (map->slots[i].value) bigger.slots[locate(&bigger, map->slots[i].key)] = map->slots[i];
  ttpu_free(map->slots);
  *map = bigger;
  return NULL;
}

ttpu_status_t *ttpu_map_put(ttpu_map_t *map, ttpu_hash_t key, void *value) {
  if (map->capacity) {
    struct ttpu_map_slot *slot = &map->slots[locate(map, key)];
    if (slot->value) {
      slot->value = value;
      return NULL;
    }
  }
  if (map->count + 1 > map->capacity / 4 * 3) TTPU_TRY(grow(map));
  map->slots[locate(map, key)] = (struct ttpu_map_slot){key, value};
  map->count++;
  return NULL;
}

void *ttpu_map_remove(ttpu_map_t *map, ttpu_hash_t key) {
  if (!map->capacity) return NULL;
  const size_t mask = map->capacity - 1;
  size_t hole = locate(map, key);
  void *value = map->slots[hole].value;
  if (!value) return NULL;
  /* Move back what a probe would no longer reach across the hole: whatever has its home at the hole or before it. */
  for (size_t i = (hole + 1) & mask; map->slots[i].value; i = (i + 1) & mask) {
    const size_t home = map->slots[i].key.lo & mask;
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      map->slots[hole] = map->slots[i];
      hole = i;
    }
  }
  map->slots[hole].value = NULL;
  map->count--;
  return value;
}

bool ttpu_map_next(const ttpu_map_t *map, size_t *cursor, ttpu_hash_t *out_key, void **out_value) {
  while (*cursor < map->capacity) {
    const struct ttpu_map_slot *slot = &map->slots[(*cursor)++];
    if (!slot->value) continue;
    if (out_key) *out_key = slot->key;
    if (out_value) *out_value = slot->value;
    return true;
  }
  return false;
}

void ttpu_map_deinit(ttpu_map_t *map) {
  ttpu_free(map->slots);
  *map = (ttpu_map_t){0};
}
