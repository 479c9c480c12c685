/* arena.h: bump allocation for what lives and dies with one graph or one module text.
 * One thread at a time. Zero-initialise; reset keeps the largest block for reuse; deinit frees all.
 */
#ifndef TTPU_BASE_ARENA_H_
#define TTPU_BASE_ARENA_H_

#include <stddef.h>

typedef struct {
  struct ttpu_arena_block *head; /* the block being filled, linked to the fuller ones */
  size_t used;                   /* bytes handed out since the last reset */
} ttpu_arena_t;

/* 16-byte aligned, not zeroed; NULL on failure. */
void *ttpu_arena_alloc(ttpu_arena_t *arena, size_t bytes);
void *ttpu_arena_copy(ttpu_arena_t *arena, const void *data, size_t bytes);
void ttpu_arena_reset(ttpu_arena_t *arena);
void ttpu_arena_deinit(ttpu_arena_t *arena);

#endif /* TTPU_BASE_ARENA_H_ */
