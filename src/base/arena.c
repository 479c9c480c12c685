/* arena.c: see arena.h. */
#include "base/arena.h"

#include <string.h>

#include "base/alloc.h"

enum { FIRST_BLOCK = 16 << 10, ALIGN = 16 };

struct ttpu_arena_block {
  struct ttpu_arena_block *next;
  size_t size, used;
  _Alignas(ALIGN) char data[];
};

void *ttpu_arena_alloc(ttpu_arena_t *arena, size_t bytes) {
  bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  struct ttpu_arena_block *block = arena->head;
  if (!block || block->size - block->used < bytes) {
    size_t size = block ? block->size * 2 : FIRST_BLOCK;
    if (size < bytes) size = bytes;
    struct ttpu_arena_block *fresh = ttpu_alloc(sizeof *fresh + size);
    if (!fresh) return NULL;
    *fresh = (struct ttpu_arena_block){.next = block, .size = size};
    arena->head = block = fresh;
  }
  void *ptr = block->data + block->used;
  block->used += bytes;
  arena->used += bytes;
  return ptr;
}

void *ttpu_arena_copy(ttpu_arena_t *arena, const void *data, size_t bytes) {
  void *ptr = ttpu_arena_alloc(arena, bytes);
  if (ptr && bytes) memcpy(ptr, data, bytes);
  return ptr;
}

/* Keeps the largest block, the newest: after a few fillings of one size there is one block and no traffic. */
void ttpu_arena_reset(ttpu_arena_t *arena) {
  struct ttpu_arena_block *kept = arena->head;
  arena->used = 0;
  if (!kept) return;
  for (struct ttpu_arena_block *block = kept->next, *next; block; block = next) {
    next = block->next;
    ttpu_free(block);
  }
  kept->next = NULL;
  kept->used = 0;
}

void ttpu_arena_deinit(ttpu_arena_t *arena) {
  ttpu_arena_reset(arena);
  ttpu_free(arena->head);
  *arena = (ttpu_arena_t){0};
}
