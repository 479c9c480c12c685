/* memory.h: the memory tier: loaded executables by key, the least recently used one leaves when the bound is reached.
 * One thread at a time (the cache's lock). Holds one reference to each executable.
 */
#ifndef TTPU_COMPILE_MEMORY_H_
#define TTPU_COMPILE_MEMORY_H_

#include "base/map.h"
#include "pjrt/pjrt.h"

typedef struct ttpu_memory_entry ttpu_memory_entry_t;

typedef struct {
  ttpu_map_t entries;
  ttpu_memory_entry_t *newest, *oldest; /* by use */
  int64_t bound;                        /* 0: nothing is kept */
} ttpu_memory_t;

void ttpu_memory_init(ttpu_memory_t *memory, int64_t bound);
void ttpu_memory_deinit(ttpu_memory_t *memory);
/* Borrowed, or NULL; counts as a use. */
ttpu_executable_t *ttpu_memory_find(ttpu_memory_t *memory, ttpu_hash_t key);
/* Adds a key that is absent. |*out_evicted| is NULL or an executable whose reference passes to the caller, to be
 * released without any lock: destroying a program takes long. Fails only for want of memory, and then keeps nothing. */
TTPU_MUST_USE ttpu_status_t *ttpu_memory_add(ttpu_memory_t *memory, ttpu_hash_t key, ttpu_executable_t *executable,
                                             ttpu_executable_t **out_evicted);
int64_t ttpu_memory_count(const ttpu_memory_t *memory);

#endif /* TTPU_COMPILE_MEMORY_H_ */
