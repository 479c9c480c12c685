/* graph.c: see graph.h. */
#include "graph/graph.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/inst_table.h"

/* --- values ---------------------------------------------------------------------------------------------- */

ttpu_value_t *ttpu_value_create(ttpu_values_t *values, int device, int64_t bytes) {
  ttpu_value_t *value = values->free;
  if (value)
    values->free = value->next;
  else if (!(value = ttpu_alloc(sizeof *value)))
    return NULL;
  *value = (ttpu_value_t){.refs = 1, .number = -1, .bytes = bytes, .device = device};
  return value;
}

void ttpu_value_release(ttpu_values_t *values, ttpu_value_t *value) {
  if (!value || --value->refs > 0) return;
  if (value->graph) value->graph->results[value->number] = NULL;
  if (value->buffer) values->drop_buffer(value);
  ttpu_status_free(value->error);
  value->next = values->free;
  values->free = value;
}

void ttpu_values_deinit(ttpu_values_t *values) {
  for (ttpu_value_t *value = values->free, *next; value; value = next) {
    next = value->next;
    ttpu_free(value);
  }
  values->free = NULL;
}

/* --- graph ----------------------------------------------------------------------------------------------- */

static const ttpu_hash_t seed = {0xa4093822299f31d0u, 0x082efa98ec4e6c89u};

static uint64_t next_epoch(void) {
  static _Atomic uint64_t epoch;
  return 1 + atomic_fetch_add_explicit(&epoch, 1, memory_order_relaxed);
}

void ttpu_graph_init(ttpu_graph_t *graph) { *graph = (ttpu_graph_t){.hash = seed, .epoch = next_epoch()}; }

void ttpu_graph_deinit(ttpu_graph_t *graph, ttpu_values_t *values) {
  ttpu_graph_reset(graph, values);
  ttpu_arena_deinit(&graph->arena);
  ttpu_free(graph->nodes);
  ttpu_free(graph->inputs);
  ttpu_free(graph->input_shapes);
  ttpu_free(graph->results);
  ttpu_free(graph->params);
  ttpu_free(graph->key);
}

static bool reserve(void *array_ptr, int32_t *capacity, int32_t need, size_t element) {
  if (need <= *capacity) return true;
  int32_t larger = *capacity ? *capacity * 2 : 64;
  while (larger < need) larger *= 2;
  void *array;
  memcpy(&array, array_ptr, sizeof array);
  array = ttpu_alloc_resize(array, (size_t)larger * element);
  if (!array) return false;
  memcpy(array_ptr, &array, sizeof array);
  *capacity = larger;
  return true;
}

ttpu_status_t *ttpu_graph_append(ttpu_graph_t *graph, ttpu_inst_t *inst, ttpu_value_t *const *operands,
                                 const uint64_t *params, int32_t *out_first_result) {
  const int32_t n = inst->operand_count;
  if (!reserve(&graph->nodes, &graph->node_capacity, graph->node_count + 1, sizeof *graph->nodes) ||
      !reserve(&graph->inputs, &graph->input_capacity, graph->input_count + n, sizeof *graph->inputs) ||
      !reserve(&graph->input_shapes, &graph->input_shape_capacity, graph->input_count + n,
               sizeof *graph->input_shapes) ||
      !reserve(&graph->results, &graph->result_capacity, graph->result_count + inst->result_count,
               sizeof *graph->results) ||
      !reserve(&graph->params, &graph->param_capacity, graph->param_count + inst->param_count,
               sizeof *graph->params) ||
      !reserve(&graph->key, &graph->key_capacity, graph->key_count + 2 + (n + 1) / 2, sizeof *graph->key))
    return TTPU_OUT_OF_HOST_MEMORY();
  int32_t *codes = ttpu_arena_alloc(&graph->arena, (size_t)(n | 1) * sizeof *codes);
  if (!codes) return TTPU_OUT_OF_HOST_MEMORY();

  for (int32_t i = 0; i < n; i++) {
    ttpu_value_t *value = operands[i];
    if (value->graph) {
      codes[i] = 2 * value->number + 1;
      continue;
    }
    if (value->input_epoch != graph->epoch) {
      value->input_epoch = graph->epoch;
      value->input = graph->input_count;
      graph->inputs[graph->input_count] = value;
      graph->input_shapes[graph->input_count++] = &inst->operands[i];
      ttpu_value_retain(value);
    }
    codes[i] = 2 * value->input;
  }

  uint64_t *key = graph->key + graph->key_count;
  const int32_t words = 2 + (n + 1) / 2;
  key[0] = inst->skeleton.lo;
  key[1] = inst->skeleton.hi;
  for (int32_t i = 0; i < n; i += 2)
    key[2 + i / 2] = (uint64_t)(uint32_t)codes[i] << 32 | (i + 1 < n ? (uint32_t)codes[i + 1] : UINT32_MAX);
  for (int32_t i = 0; i < words; i++) graph->hash = ttpu_hash_fold(graph->hash, key[i]);
  graph->key_count += words;

  if (inst->param_count)
    memcpy(graph->params + graph->param_count, params, (size_t)inst->param_count * sizeof *params);
  graph->nodes[graph->node_count++] =
      (ttpu_node_t){inst, codes, graph->result_count, graph->param_count};
  ttpu_inst_retain(inst);
  graph->param_count += inst->param_count;
  *out_first_result = graph->result_count;
  for (int32_t i = 0; i < inst->result_count; i++) graph->results[graph->result_count++] = NULL;
  return NULL;
}

void ttpu_graph_watch(ttpu_graph_t *graph, int32_t number, ttpu_value_t *value) {
  graph->results[number] = value;
  value->graph = graph;
  value->number = number;
}

const ttpu_node_t *ttpu_graph_producer(const ttpu_graph_t *graph, int32_t number) {
  int32_t low = 0, high = graph->node_count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    *(graph->nodes[middle].first_result <= number ? &low : &high) = middle;
  }
  /* nodes without results share a first_result with their successor; the search ends on the last of them */
  return &graph->nodes[low];
}

void ttpu_graph_reset(ttpu_graph_t *graph, ttpu_values_t *values) {
  for (int32_t i = 0; i < graph->input_count; i++) ttpu_value_release(values, graph->inputs[i]);
  for (int32_t i = 0; i < graph->node_count; i++) ttpu_inst_release(graph->nodes[i].inst);
  graph->node_count = graph->input_count = graph->result_count = graph->param_count = graph->key_count = 0;
  graph->hash = seed;
  graph->epoch = next_epoch();
  ttpu_arena_reset(&graph->arena);
}
