/* inst_table.c: see inst_table.h. An instance and all its arrays are one block of memory. */
#include "graph/inst_table.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"

ttpu_status_t *ttpu_inst_table_init(ttpu_inst_table_t *table, int64_t bound) {
  *table = (ttpu_inst_table_t){.bucket_count = 4096, .bound = bound};
  table->buckets = ttpu_alloc_zero(table->bucket_count, sizeof *table->buckets);
  return table->buckets ? NULL : TTPU_OUT_OF_HOST_MEMORY();
}

void ttpu_inst_table_deinit(ttpu_inst_table_t *table) {
  for (ttpu_inst_t *inst = table->oldest, *age; inst; inst = age) {
    age = inst->age;
    ttpu_inst_release(inst);
  }
  ttpu_free(table->buckets);
  *table = (ttpu_inst_table_t){0};
}

void ttpu_inst_retain(ttpu_inst_t *inst) { atomic_fetch_add_explicit(&inst->refs, 1, memory_order_relaxed); }

void ttpu_inst_release(ttpu_inst_t *inst) {
  if (inst && atomic_fetch_sub_explicit(&inst->refs, 1, memory_order_acq_rel) == 1) ttpu_free(inst);
}

ttpu_inst_t *ttpu_inst_table_find(const ttpu_inst_table_t *table, ttpu_hash_t hash, const uint64_t *words,
                                  int32_t word_count) {
  ttpu_inst_t *inst = table->buckets[hash.lo & (table->bucket_count - 1)];
  for (; inst; inst = inst->next)
    if (ttpu_hash_equal(inst->hash, hash) && inst->word_count == word_count &&
        !memcmp(inst->words, words, (size_t)word_count * sizeof *words))
      return inst;
  return NULL;
}

/* --- copying a draft into one block -------------------------------------------------------------------- */

/* Two passes over the same code: with |base| NULL it only measures. */
typedef struct {
  char *base;
  size_t used;
} block_t;

static void *place(block_t *block, const void *data, size_t bytes) {
  void *ptr = block->base ? block->base + block->used : NULL;
  if (ptr && bytes) memcpy(ptr, data, bytes);
  block->used += (bytes + 7) & ~(size_t)7;
  return ptr;
}

static void place_shape(block_t *block, ttpu_shape_t *out, const ttpu_shape_t *shape) {
  const int64_t *dims = place(block, shape->dims, (size_t)shape->rank * sizeof *dims);
  if (block->base) *out = (ttpu_shape_t){shape->dtype, shape->rank, dims};
}

static ttpu_inst_t *copy_into(block_t *block, const ttpu_inst_t *draft) {
  ttpu_inst_t *inst = place(block, draft, sizeof *draft);
  ttpu_arg_t *args = place(block, draft->args, (size_t)draft->arg_count * sizeof *args);
  for (int i = 0; i < draft->arg_count; i++) {
    const ttpu_arg_t *arg = &draft->args[i];
    const void *copy = NULL;
    if (arg->kind == TTPU_ARG_TENSORS || arg->kind == TTPU_ARG_INTS)
      copy = place(block, arg->u.items, (size_t)arg->count * 8);
    else if (arg->kind == TTPU_ARG_DOUBLES)
      copy = place(block, arg->u.numbers, (size_t)arg->count * 8);
    else if (arg->kind == TTPU_ARG_STRING)
      copy = place(block, arg->u.text, strlen(arg->u.text) + 1);
    else
      continue;
    if (args) args[i].u.items = copy;
  }
  ttpu_shape_t *operands = place(block, draft->operands, (size_t)draft->operand_count * sizeof *operands);
  for (int i = 0; i < draft->operand_count; i++) place_shape(block, operands ? operands + i : NULL, draft->operands + i);
  ttpu_result_t *results = place(block, draft->results, (size_t)draft->result_count * sizeof *results);
  for (int i = 0; i < draft->result_count; i++) {
    const ttpu_result_t *from = &draft->results[i];
    place_shape(block, results ? &results[i].shape : NULL, &from->shape);
    const int64_t *strides =
        from->strides ? place(block, from->strides, (size_t)from->shape.rank * sizeof *strides) : NULL;
    if (results) results[i].strides = strides;
  }
  const uint64_t *words = place(block, draft->words, (size_t)draft->word_count * sizeof *words);
  const char *kinds = place(block, draft->param_kinds, (size_t)draft->param_count);
  if (inst) {
    inst->args = args;
    inst->operands = operands;
    inst->results = results;
    inst->words = words;
    inst->param_kinds = kinds;
  }
  return inst;
}

/* --- the skeleton: what shapes the program -------------------------------------------------------------- */

static ttpu_hash_t fold_shape(ttpu_hash_t h, const ttpu_shape_t *shape) {
  h = ttpu_hash_fold(h, (uint64_t)shape->dtype << 32 | (uint32_t)shape->rank);
  for (int i = 0; i < shape->rank; i++) h = ttpu_hash_fold(h, (uint64_t)shape->dims[i]);
  return h;
}

static ttpu_hash_t skeleton_of(const ttpu_inst_t *inst, const char *row_name) {
  ttpu_hash_t h = ttpu_hash_bytes(row_name, strlen(row_name));
  for (int i = 0; i < inst->arg_count; i++) {
    const ttpu_arg_t *arg = &inst->args[i];
    h = ttpu_hash_fold(h, (uint64_t)arg->kind << 48 | (uint64_t)arg->dtype << 40 | (uint64_t)arg->wrapped << 32 |
                              (uint32_t)arg->first);
    h = ttpu_hash_fold(h, (uint64_t)arg->count);
    switch (arg->kind) {
      case TTPU_ARG_TENSORS:
      case TTPU_ARG_INTS:
      case TTPU_ARG_DOUBLES:
        for (int j = 0; j < arg->count; j++) {
          uint64_t word;
          memcpy(&word, (const char *)arg->u.items + 8 * j, 8);
          h = ttpu_hash_fold(h, word);
        }
        break;
      case TTPU_ARG_INT:
      case TTPU_ARG_NUMBER:
        h = ttpu_hash_fold(h, (uint64_t)arg->u.integer);
        break;
      case TTPU_ARG_STRING: {
        const ttpu_hash_t text = ttpu_hash_bytes(arg->u.text, strlen(arg->u.text));
        h = ttpu_hash_fold(h, text.lo ^ text.hi);
        break;
      }
      default:
        break;
    }
  }
  for (int i = 0; i < inst->operand_count; i++) h = fold_shape(h, &inst->operands[i]);
  for (int i = 0; i < inst->result_count; i++) h = fold_shape(h, &inst->results[i].shape);
  for (int i = 0; i < inst->param_count; i++) h = ttpu_hash_fold(h, (uint64_t)inst->param_kinds[i]);
  return (ttpu_hash_t){ttpu_hash_mix(h.lo), ttpu_hash_mix(h.hi ^ h.lo)};
}

/* --- interning ------------------------------------------------------------------------------------------ */

static void unlink_oldest(ttpu_inst_table_t *table) {
  ttpu_inst_t *inst = table->oldest;
  ttpu_inst_t **link = &table->buckets[inst->hash.lo & (table->bucket_count - 1)];
  while (*link != inst) link = &(*link)->next;
  *link = inst->next;
  table->oldest = inst->age;
  if (!table->oldest) table->newest = NULL;
  table->count--;
  table->evicted++;
  ttpu_inst_release(inst);
}

static void grow(ttpu_inst_table_t *table) {
  const size_t bucket_count = table->bucket_count * 2;
  ttpu_inst_t **buckets = ttpu_alloc_zero(bucket_count, sizeof *buckets);
  if (!buckets) return; /* longer chains, nothing worse */
  for (ttpu_inst_t *inst = table->oldest; inst; inst = inst->age) {
    ttpu_inst_t **bucket = &buckets[inst->hash.lo & (bucket_count - 1)];
    inst->next = *bucket;
    *bucket = inst;
  }
  ttpu_free(table->buckets);
  table->buckets = buckets;
  table->bucket_count = bucket_count;
}

ttpu_status_t *ttpu_inst_table_intern(ttpu_inst_table_t *table, const ttpu_inst_t *draft, const char *row_name,
                                      ttpu_inst_t **out_inst) {
  *out_inst = NULL;
  const ttpu_hash_t hash = ttpu_hash_words(draft->words, (size_t)draft->word_count);
  ttpu_inst_t *inst = ttpu_inst_table_find(table, hash, draft->words, draft->word_count);
  if (!inst) {
    block_t block = {0};
    copy_into(&block, draft);
    block = (block_t){.base = ttpu_alloc(block.used)};
    if (!block.base) return TTPU_OUT_OF_HOST_MEMORY();
    inst = copy_into(&block, draft);
    inst->hash = hash;
    inst->skeleton = skeleton_of(inst, row_name);
    inst->age = NULL;
    atomic_init(&inst->refs, 1);
    if (table->count >= table->bound)
      for (int64_t i = table->bound / 2; i > 0 && table->oldest; i--) unlink_oldest(table);
    if ((size_t)table->count > table->bucket_count) grow(table);
    ttpu_inst_t **bucket = &table->buckets[hash.lo & (table->bucket_count - 1)];
    inst->next = *bucket;
    *bucket = inst;
    *(table->newest ? &table->newest->age : &table->oldest) = inst;
    table->newest = inst;
    table->count++;
    table->created++;
  }
  *out_inst = inst;
  return NULL;
}
