/* map.h: a hash map from a 128-bit hash to a pointer: open addressing, linear probing, no tombstones.
 * One thread at a time. Zero-initialise, then deinit. Values are borrowed and never NULL.
 */
#ifndef TTPU_BASE_MAP_H_
#define TTPU_BASE_MAP_H_

#include <stddef.h>

#include "base/hash.h"
#include "base/status.h"

typedef struct {
  struct ttpu_map_slot *slots;
  size_t capacity, count; /* capacity: 0 or a power of two, at least 4/3 of count */
} ttpu_map_t;

/* The value of |key|, or NULL. */
void *ttpu_map_find(const ttpu_map_t *map, ttpu_hash_t key);
/* Adds or replaces. Fails only where memory for growth does; the map is then as before. */
TTPU_MUST_USE ttpu_status_t *ttpu_map_put(ttpu_map_t *map, ttpu_hash_t key, void *value);
/* Takes |key| out and returns its value; NULL when absent. Never fails. */
void *ttpu_map_remove(ttpu_map_t *map, ttpu_hash_t key);
/* Walks in no order from *cursor = 0 on; false at the end. The map must not change meanwhile. Results may be NULL. */
bool ttpu_map_next(const ttpu_map_t *map, size_t *cursor, ttpu_hash_t *out_key, void **out_value);
void ttpu_map_deinit(ttpu_map_t *map);

#endif /* TTPU_BASE_MAP_H_ */
