/* core.c: see core.h. Recording, cutting, and what happens when a program fails. */
#include "runtime/core.h"

#include <string.h>

#include "base/alloc.h"
#include "ops/ops.h"
#include "runtime/storage.h"

ttpu_core_t ttpu_core = {.lock = PTHREAD_MUTEX_INITIALIZER, .mode = TTPU_MODE_STRICT, .precision = 2};

ttpu_status_t *ttpu_core_end_status(void) {
  if (atomic_load(&ttpu_core.end) == TTPU_FORKED)
    return TTPU_ERROR(FAILED_PRECONDITION, "Cannot use tpu in a forked subprocess: its parent had started the device. To "
                      "use tpu with multiprocessing, you must use the 'spawn' start method");
  return TTPU_ERROR(FAILED_PRECONDITION, "the tpu device was shut down");
}

/* --- values and buffers ------------------------------------------------------------------------------------ */

void ttpu_core_set_buffer(ttpu_value_t *value, ttpu_buffer_t *buffer) {
  ttpu_device_t *device = &ttpu_core.devices[value->device];
  value->graph = NULL;
  value->number = -1;
  value->buffer = buffer;
  const int64_t bytes = atomic_fetch_add_explicit(&device->bytes, value->bytes, memory_order_relaxed) + value->bytes;
  if (bytes > atomic_load_explicit(&device->peak_bytes, memory_order_relaxed))
    atomic_store_explicit(&device->peak_bytes, bytes, memory_order_relaxed);
  atomic_fetch_add_explicit(&device->allocations, 1, memory_order_relaxed);
}

static void fail_value(ttpu_value_t *value, const ttpu_status_t *status) {
  value->graph = NULL;
  value->number = -1;
  value->error = ttpu_status_clone(status);
}

/* --- recording ---------------------------------------------------------------------------------------------- */

ttpu_status_t *ttpu_core_intern(const ttpu_inst_t *draft, ttpu_inst_t **out_inst) {
  return ttpu_inst_table_intern(&ttpu_core.insts, draft, op_rows[draft->row].aten, out_inst);
}

ttpu_status_t *ttpu_core_append(ttpu_device_t *device, ttpu_inst_t *inst, ttpu_value_t *const *operands,
                                const uint64_t *params, int32_t *out_first_result) {
  for (int32_t i = 0; i < inst->operand_count; i++)
    if (operands[i]->error) return ttpu_status_clone(operands[i]->error);
  return ttpu_graph_append(&device->graph, inst, operands, params, out_first_result);
}

ttpu_status_t *ttpu_core_watch(ttpu_device_t *device, const ttpu_inst_t *inst, int32_t first_result, int k,
                               ttpu_value_t **out_value) {
  const ttpu_shape_t *shape = &inst->results[k].shape;
  ttpu_value_t *value = ttpu_value_create(&ttpu_core.values, device->index,
                                          ttpu_dims_numel(shape->rank, shape->dims) * ttpu_dtype_bytes(shape->dtype));
  *out_value = value;
  if (!value) return TTPU_OUT_OF_HOST_MEMORY();
  ttpu_graph_watch(&device->graph, first_result + k, value);
  return NULL;
}

ttpu_status_t *ttpu_core_recorded(ttpu_device_t *device) {
  ttpu_core.ops_recorded++;
  if (ttpu_core.mode == TTPU_MODE_FUSED && device->graph.node_count < ttpu_core.fused_nodes) return NULL;
  TTPU_TRY(ttpu_core_cut(device));
  if (ttpu_core.mode == TTPU_MODE_DEBUG && device->last && device->last->buffer)
    return ttpu_buffer_await(device->last->buffer);
  return NULL;
}

/* --- cutting ------------------------------------------------------------------------------------------------ */

static bool has_live_results(const ttpu_graph_t *graph) {
  for (int32_t i = 0; i < graph->result_count; i++)
    if (graph->results[i]) return true;
  return false;
}

/* Runs a failed graph node by node, so that only what depends on the failing node fails: the rest of a fused step, its
 * parameters above all, is as if it had been recorded strictly. Every result is alive here. */
static ttpu_status_t *replay(ttpu_device_t *device, ttpu_graph_t *graph) {
  ttpu_value_t **results = ttpu_alloc_zero((size_t)graph->result_count, sizeof *results);
  ttpu_status_t *first_failure = NULL;
  if (!results) return TTPU_OUT_OF_HOST_MEMORY();
  ttpu_graph_t one;
  ttpu_graph_init(&one);
  for (int32_t i = 0; i < graph->node_count; i++) {
    const ttpu_node_t *node = &graph->nodes[i];
    ttpu_value_t *fixed[64], **operands = fixed;
    const ttpu_inst_t *inst = node->inst;
    ttpu_status_t *status = NULL;
    if (inst->operand_count > 64 && !(operands = ttpu_alloc((size_t)inst->operand_count * sizeof *operands)))
      status = TTPU_OUT_OF_HOST_MEMORY();
    for (int32_t j = 0; !status && j < inst->operand_count; j++) {
      const int32_t code = node->operands[j];
      operands[j] = code & 1 ? results[code / 2] : graph->inputs[code / 2];
      if (!operands[j])
        status = TTPU_OUT_OF_HOST_MEMORY();
      else if (operands[j]->error) status = ttpu_status_clone(operands[j]->error);
    }
    int32_t first;
    if (!status) status = ttpu_graph_append(&one, node->inst, operands, graph->params + node->first_param, &first);
    for (int32_t k = 0; k < inst->result_count; k++) {
      const int32_t number = node->first_result + k;
      ttpu_value_t *value = graph->results[number];
      if (value) {
        value->graph = NULL;
        ttpu_value_retain(value);
      } else if (!(value = ttpu_value_create(&ttpu_core.values, device->index, 0))) {
        continue; /* its readers fail, above */
      }
      results[number] = value;
      if (!status) ttpu_graph_watch(&one, k, value);
    }
    if (!status)
      status = ttpu_program_run(&ttpu_core.programs, ttpu_core.client, ttpu_core.cache, &one, device->index,
                                ttpu_core.precision, ttpu_core_set_buffer);
    for (int32_t k = 0; k < inst->result_count; k++) {
      ttpu_value_t *value = results[node->first_result + k];
      if (value && status && !value->buffer) fail_value(value, status);
    }
    ttpu_graph_reset(&one, &ttpu_core.values);
    if (operands != fixed) ttpu_free(operands);
    if (status && !first_failure)
      first_failure = status;
    else
      ttpu_status_free(status);
  }
  for (int32_t i = 0; i < graph->result_count; i++) ttpu_value_release(&ttpu_core.values, results[i]);
  ttpu_free(results);
  ttpu_graph_deinit(&one, &ttpu_core.values);
  return first_failure;
}

ttpu_status_t *ttpu_core_cut(ttpu_device_t *device) {
  ttpu_graph_t *graph = &device->graph;
  if (!graph->node_count) return NULL;
  ttpu_storage_drain();
  ttpu_status_t *status = NULL;
  ttpu_value_t *smallest = NULL;
  ttpu_value_release(&ttpu_core.values, device->last);
  device->last = NULL;
  if (has_live_results(graph)) {
    ttpu_core.cuts++;
    for (int32_t i = 0; i < graph->result_count; i++)
      if (graph->results[i] && (!smallest || graph->results[i]->bytes < smallest->bytes)) smallest = graph->results[i];
    ttpu_value_retain(smallest);
    status = ttpu_program_run(&ttpu_core.programs, ttpu_core.client, ttpu_core.cache, graph, device->index,
                              ttpu_core.precision, ttpu_core_set_buffer);
    ttpu_core.programs_run++;
    if (status && graph->node_count > 1) {
      ttpu_status_free(status);
      status = replay(device, graph);
    }
    /* whatever is still pending failed */
    for (int32_t i = 0; i < graph->result_count; i++)
      if (graph->results[i] && graph->results[i]->graph == graph) fail_value(graph->results[i], status);
    device->last = smallest;
  }
  ttpu_storage_settle(device, status != NULL);
  ttpu_graph_reset(graph, &ttpu_core.values);
  return status;
}

/* --- the public recording call ------------------------------------------------------------------------------ */

void ttpu_inst_drop(ttpu_inst_t *inst) { ttpu_inst_release(inst); }

ttpu_status_t *ttpu_inst_make(const ttpu_inst_t *draft) {
  if (draft->row < 0 || draft->row >= op_row_count) return TTPU_ERROR(INVALID_ARGUMENT, "no such row: %d", draft->row);
  TTPU_TRY(ttpu_program_check(draft));
  ttpu_inst_t *inst;
  ttpu_core_lock();
  ttpu_status_t *status = ttpu_core_intern(draft, &inst);
  ttpu_core_unlock();
  return status;
}

/* Results of a node: fresh storages, or writes to targets. */
static ttpu_status_t *place_results(ttpu_device_t *device, const ttpu_inst_t *inst, int32_t first, ttpu_record_t *r) {
  for (int32_t k = 0; k < inst->result_count; k++) {
    const ttpu_result_t *result = &inst->results[k];
    r->storages[k] = NULL;
    if (!result->shape.dtype) continue;
    ttpu_value_t *value;
    TTPU_TRY(ttpu_core_watch(device, inst, first, k, &value));
    ttpu_status_t *status = NULL;
    if (result->alias >= 0) {
      status = ttpu_storage_write(device, &r->targets[result->alias], value, &result->shape);
      ttpu_value_release(&ttpu_core.values, value);
    } else {
      const int rank = result->shape.rank;
      const bool dense = ttpu_view_is_dense(rank, result->shape.dims, result->strides);
      int64_t elements = 1;
      for (int i = 0; i < rank; i++)
        elements = result->shape.dims[i] == 0 ? 0 : elements + (result->shape.dims[i] - 1) * result->strides[i];
      for (int i = 0; i < rank; i++)
        if (result->shape.dims[i] == 0) elements = 0;
      const int64_t bytes = elements * ttpu_dtype_bytes(result->shape.dtype);
      status = ttpu_storage_make(device->index, bytes, &r->storages[k]);
      if (!status && dense) {
        status = ttpu_storage_rebase(r->storages[k], result->shape.dtype, rank, result->shape.dims, result->strides, value);
        if (!status) continue;
      } else if (!status) {
        const ttpu_view_t view = {r->storages[k], (int32_t)result->shape.dtype, rank, 0, result->shape.dims,
                                  result->strides};
        status = ttpu_storage_write(device, &view, value, &result->shape);
      }
      ttpu_value_release(&ttpu_core.values, value);
    }
    if (status) return status;
  }
  return NULL;
}

static ttpu_status_t *record(ttpu_device_t *device, ttpu_inst_t *inst, ttpu_record_t *r) {
  enum { FIXED = 32 };
  ttpu_value_t *fixed[FIXED], **operands = fixed;
  if (r->operand_count != inst->operand_count || r->param_count != inst->param_count ||
      r->storage_capacity < inst->result_count)
    return TTPU_ERROR(INTERNAL, "%s: the call has %d operands and %d parameters, its instance %d and %d",
                      op_rows[inst->row].aten, r->operand_count, r->param_count, inst->operand_count, inst->param_count);
  if (inst->operand_count > FIXED && !(operands = ttpu_alloc((size_t)inst->operand_count * sizeof *operands)))
    return TTPU_OUT_OF_HOST_MEMORY();
  ttpu_status_t *status = NULL;
  int32_t read = 0, first = 0;
  while (!status && read < inst->operand_count)
    if (!(status = ttpu_storage_read(device, &r->operands[read], &operands[read]))) read++;
  if (!status) status = ttpu_core_append(device, inst, operands, r->params, &first);
  while (read > 0) ttpu_value_release(&ttpu_core.values, operands[--read]);
  if (operands != fixed) ttpu_free(operands);
  if (status) return status;
  for (int32_t k = 0; k < inst->result_count; k++) r->storages[k] = NULL;
  status = place_results(device, inst, first, r);
  if (!status) status = ttpu_core_recorded(device);
  if (status)
    for (int32_t k = 0; k < inst->result_count; k++) {
      ttpu_storage_drop(r->storages[k]);
      r->storages[k] = NULL;
    }
  return status;
}

int ttpu_record(ttpu_record_t *r, ttpu_status_t **out_status) {
  *out_status = NULL;
  r->inst = NULL;
  if ((*out_status = ttpu_core_check())) return TTPU_FAILED;
  const ttpu_hash_t hash = ttpu_hash_words(r->words, (size_t)r->word_count);
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_inst_t *inst = ttpu_inst_table_find(&ttpu_core.insts, hash, r->words, r->word_count);
  if (!inst) {
    ttpu_core_unlock();
    return TTPU_UNSEEN;
  }
  ttpu_inst_retain(inst);
  ttpu_status_t *status = record(&ttpu_core.devices[r->device], inst, r);
  ttpu_core_unlock();
  if (status) {
    ttpu_inst_release(inst);
    *out_status = ttpu_status_annotate(status, "aten::%s", op_rows[inst->row].aten);
    return TTPU_FAILED;
  }
  r->inst = inst;
  return TTPU_RECORDED;
}
