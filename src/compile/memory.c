/* memory.c: see memory.h. */
#include "compile/memory.h"

#include "base/alloc.h"

struct ttpu_memory_entry {
  ttpu_memory_entry_t *newer, *older;
  ttpu_hash_t key;
  ttpu_executable_t *executable;
};

void ttpu_memory_init(ttpu_memory_t *memory, int64_t bound) { *memory = (ttpu_memory_t){.bound = bound}; }

static void unlink_use(ttpu_memory_t *memory, ttpu_memory_entry_t *entry) {
  *(entry->newer ? &entry->newer->older : &memory->newest) = entry->older;
  *(entry->older ? &entry->older->newer : &memory->oldest) = entry->newer;
}

static void link_newest(ttpu_memory_t *memory, ttpu_memory_entry_t *entry) {
  entry->newer = NULL;
  entry->older = memory->newest;
  *(memory->newest ? &memory->newest->newer : &memory->oldest) = entry;
  memory->newest = entry;
}

/* Returns the executable with the reference the entry held. */
static ttpu_executable_t *take_oldest(ttpu_memory_t *memory) {
  ttpu_memory_entry_t *entry = memory->oldest;
  ttpu_executable_t *executable = entry->executable;
  unlink_use(memory, entry);
  ttpu_map_remove(&memory->entries, entry->key);
  ttpu_free(entry);
  return executable;
}

void ttpu_memory_deinit(ttpu_memory_t *memory) {
  while (memory->oldest) ttpu_executable_release(take_oldest(memory));
  ttpu_map_deinit(&memory->entries);
  *memory = (ttpu_memory_t){0};
}

ttpu_executable_t *ttpu_memory_find(ttpu_memory_t *memory, ttpu_hash_t key) {
  ttpu_memory_entry_t *entry = ttpu_map_find(&memory->entries, key);
  if (!entry) return NULL;
  unlink_use(memory, entry);
  link_newest(memory, entry);
  return entry->executable;
}

ttpu_status_t *ttpu_memory_add(ttpu_memory_t *memory, ttpu_hash_t key, ttpu_executable_t *executable,
                               ttpu_executable_t **out_evicted) {
  *out_evicted = NULL;
  if (memory->bound <= 0) return NULL;
  ttpu_memory_entry_t *entry = ttpu_alloc(sizeof *entry);
  if (!entry) return TTPU_OUT_OF_HOST_MEMORY();
  *entry = (ttpu_memory_entry_t){.key = key, .executable = executable};
  ttpu_status_t *status = ttpu_map_put(&memory->entries, key, entry);
  if (status) {
    ttpu_free(entry);
    return status;
  }
  ttpu_executable_retain(executable);
  link_newest(memory, entry);
  if (ttpu_memory_count(memory) > memory->bound) *out_evicted = take_oldest(memory);
  return NULL;
}

int64_t ttpu_memory_count(const ttpu_memory_t *memory) { return (int64_t)memory->entries.count; }
