/* program.c: see program.h. */
#include "runtime/program.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/ops.h"

/* One executable of a program: which results it returns, which inputs it may consume, which parameters it reads. */
typedef struct variant {
  struct variant *next;
  ttpu_executable_t *executable;
  int32_t result_count, slot_count;
  int32_t *results;      /* result numbers, rising */
  int64_t *result_bytes;
  uint8_t *donated;      /* one an input */
  int32_t *slots;        /* parameter numbers, in the order of the packed buffer */
  uint64_t *bits;        /* what |packed| holds */
  ttpu_buffer_t *packed;
  int packed_device;
} variant_t;

struct ttpu_program {
  ttpu_program_t *next, *newer, *older;
  ttpu_hash_t hash;
  int precision;
  int32_t key_count, param_count, input_count;
  uint64_t *key, *base; /* base: the parameters first seen */
  uint8_t *runtime;     /* one a parameter: it is an input */
  variant_t *variants;
  int32_t variant_count;
};

enum { MAX_VARIANTS = 8 };

/* --- table ---------------------------------------------------------------------------------------------- */

ttpu_status_t *ttpu_programs_init(ttpu_programs_t *programs, int64_t bound) {
  *programs = (ttpu_programs_t){.bucket_count = 4096, .bound = bound};
  programs->buckets = ttpu_alloc_zero(programs->bucket_count, sizeof *programs->buckets);
  return programs->buckets ? NULL : TTPU_OUT_OF_HOST_MEMORY();
}

static void variant_free(variant_t *variant) {
  if (!variant) return;
  ttpu_executable_release(variant->executable);
  ttpu_buffer_release(variant->packed);
  ttpu_free(variant);
}

static void drop_variants(ttpu_program_t *program) {
  for (variant_t *variant = program->variants, *next; variant; variant = next) {
    next = variant->next;
    variant_free(variant);
  }
  program->variants = NULL;
  program->variant_count = 0;
}

static void unlink_use(ttpu_programs_t *programs, ttpu_program_t *program) {
  *(program->newer ? &program->newer->older : &programs->newest) = program->older;
  *(program->older ? &program->older->newer : &programs->oldest) = program->newer;
}

static void link_newest(ttpu_programs_t *programs, ttpu_program_t *program) {
  program->newer = NULL;
  program->older = programs->newest;
  *(programs->newest ? &programs->newest->newer : &programs->oldest) = program;
  programs->newest = program;
}

static void program_free(ttpu_programs_t *programs, ttpu_program_t *program) {
  ttpu_program_t **link = &programs->buckets[program->hash.lo & (programs->bucket_count - 1)];
  while (*link != program) link = &(*link)->next;
  *link = program->next;
  unlink_use(programs, program);
  drop_variants(program);
  ttpu_free(program);
  programs->count--;
}

void ttpu_programs_deinit(ttpu_programs_t *programs) {
  while (programs->oldest) program_free(programs, programs->oldest);
  ttpu_free(programs->buckets);
  *programs = (ttpu_programs_t){0};
}

static ttpu_program_t *find(const ttpu_programs_t *programs, const ttpu_graph_t *graph, int precision) {
  ttpu_program_t *program = programs->buckets[graph->hash.lo & (programs->bucket_count - 1)];
  for (; program; program = program->next)
    if (ttpu_hash_equal(program->hash, graph->hash) && program->precision == precision &&
        program->key_count == graph->key_count &&
        !memcmp(program->key, graph->key, (size_t)graph->key_count * sizeof *graph->key))
      return program;
  return NULL;
}

/* --- which parameters are inputs -------------------------------------------------------------------------- */

static ttpu_hash_t note_key(const ttpu_program_t *program) {
  const uint64_t words[] = {program->hash.lo, program->hash.hi, (uint64_t)program->precision, 0x6e6f7465};
  return ttpu_hash_words(words, 4);
}

/* The note: base parameters, then one byte a parameter. */
static void load_note(ttpu_program_t *program, ttpu_cache_t *cache) {
  const size_t n = (size_t)program->param_count;
  void *data = NULL;
  size_t size = 0;
  ttpu_status_t *status = ttpu_cache_note_load(cache, note_key(program), &data, &size);
  if (!status && size == n * 9) {
    memcpy(program->base, data, n * 8);
    memcpy(program->runtime, (char *)data + n * 8, n);
  }
  ttpu_status_free(status);
  ttpu_free(data);
}

static void store_note(const ttpu_program_t *program, ttpu_cache_t *cache) {
  const size_t n = (size_t)program->param_count;
  char *data = ttpu_alloc(n * 9);
  if (!data) return; /* a later process compiles once more; nothing is lost */
  memcpy(data, program->base, n * 8);
  memcpy(data + n * 8, program->runtime, n);
  ttpu_status_free(ttpu_cache_note_store(cache, note_key(program), data, n * 9));
  ttpu_free(data);
}

static ttpu_status_t *create(ttpu_programs_t *programs, const ttpu_graph_t *graph, int precision, ttpu_cache_t *cache,
                             ttpu_program_t **out_program) {
  const size_t words = (size_t)graph->key_count, params = (size_t)graph->param_count;
  char *block = ttpu_alloc(sizeof(ttpu_program_t) + (words + params) * 8 + params);
  *out_program = NULL;
  if (!block) return TTPU_OUT_OF_HOST_MEMORY();
  ttpu_program_t *program = (ttpu_program_t *)(void *)block;
  *program = (ttpu_program_t){.hash = graph->hash,
                              .precision = precision,
                              .key_count = graph->key_count,
                              .param_count = graph->param_count,
                              .input_count = graph->input_count};
  program->key = (uint64_t *)(void *)(block + sizeof *program);
  program->base = program->key + words;
  program->runtime = (uint8_t *)(program->base + params);
  memcpy(program->key, graph->key, words * 8);
  if (params) memcpy(program->base, graph->params, params * 8);
  int32_t p = 0;
  for (int32_t i = 0; i < graph->node_count; i++)
    for (int32_t j = 0; j < graph->nodes[i].inst->param_count; j++)
      program->runtime[p++] = graph->nodes[i].inst->param_kinds[j] == 'r';
  if (params) load_note(program, cache);
  if (programs->count >= programs->bound) {
    program_free(programs, programs->oldest);
    programs->evictions++;
  }
  ttpu_program_t **bucket = &programs->buckets[graph->hash.lo & (programs->bucket_count - 1)];
  program->next = *bucket;
  *bucket = program;
  link_newest(programs, program);
  programs->count++;
  *out_program = program;
  return NULL;
}

/* Makes the parameters that differ from the first seen ones inputs. Returns the first of them, or -1. */
static int32_t widen(ttpu_program_t *program, const ttpu_graph_t *graph) {
  int32_t first = -1;
  for (int32_t i = 0; i < program->param_count; i++)
    if (!program->runtime[i] && program->base[i] != graph->params[i]) {
      program->runtime[i] = 1;
      if (first < 0) first = i;
    }
  return first;
}

/* --- emission ---------------------------------------------------------------------------------------------- */

typedef struct {
  const ttpu_graph_t *graph;
  const ttpu_program_t *program;
  const variant_t *variant;
  hlo_t *module;
} emission_t;

/* Nodes that the wanted results need, marked backwards. */
static void mark_needed(const ttpu_graph_t *graph, const variant_t *variant, uint8_t *needed, uint8_t *wanted) {
  for (int32_t i = 0; i < variant->result_count; i++) wanted[variant->results[i]] = 1;
  for (int32_t i = graph->node_count - 1; i >= 0; i--) {
    const ttpu_node_t *node = &graph->nodes[i];
    for (int32_t k = 0; k < node->inst->result_count && !needed[i]; k++) needed[i] = wanted[node->first_result + k];
    for (int32_t k = 0; needed[i] && k < node->inst->operand_count; k++)
      if (node->operands[k] & 1) wanted[node->operands[k] / 2] = 1;
  }
}

/* Parameter |p| as a rank-0 value: the packed buffer holds 64 bits a slot. */
static hlo_val_t unpack(hlo_t *h, hlo_val_t packed, int32_t slot, char kind) {
  hlo_val_t bits = hlo_squeeze(h, hlo_slice_dim(h, packed, 0, slot, slot + 1, 1), 0);
  return hlo_bitcast(h, bits, kind == 'd' ? TTPU_F64 : TTPU_I64);
}

static ttpu_status_t *emit_node(hlo_t *h, const ttpu_node_t *node, const hlo_val_t *inputs, hlo_val_t *results,
                                const hlo_val_t *params, const uint64_t *constants) {
  const ttpu_inst_t *inst = node->inst;
  hlo_val_t operands_fixed[64], *operands = operands_fixed;
  if (inst->operand_count > 64 && !(operands = ttpu_alloc((size_t)inst->operand_count * sizeof *operands)))
    return TTPU_OUT_OF_HOST_MEMORY();
  for (int32_t i = 0; i < inst->operand_count; i++)
    operands[i] = node->operands[i] & 1 ? results[node->operands[i] / 2] : inputs[node->operands[i] / 2];
  const op_call_t call = {inst, operands, params + node->first_param, constants + node->first_param,
                          results + node->first_result};
  const op_row_t *row = &op_rows[inst->row];
  row->emit(h, &call);
  for (int32_t k = 0; k < inst->result_count && !hlo_failed(h); k++)
    if (inst->results[k].shape.dtype && !call.results[k])
      hlo_fail_code(h, TTPU_INTERNAL, "%s: the lowering gave no result %d", row->aten, (int)k);
  if (operands != operands_fixed) ttpu_free(operands);
  return NULL;
}

static ttpu_status_t *emit(void *ctx, const char **out_text, size_t *out_size) {
  emission_t *e = ctx;
  const ttpu_graph_t *graph = e->graph;
  const size_t inputs_n = (size_t)graph->input_count, results_n = (size_t)graph->result_count,
               params_n = (size_t)graph->param_count, nodes_n = (size_t)graph->node_count,
               outs_n = (size_t)e->variant->result_count;
  hlo_val_t *values = ttpu_alloc_zero(inputs_n + results_n + params_n + outs_n, sizeof *values);
  uint8_t *needed = ttpu_alloc_zero(nodes_n + results_n, 1);
  hlo_t *h = e->module = hlo_create();
  ttpu_status_t *status = NULL;
  if (!values || !needed || !h) {
    status = TTPU_OUT_OF_HOST_MEMORY();
    goto out;
  }
  hlo_val_t *inputs = values, *results = values + inputs_n, *params = results + results_n, *outs = params + params_n;
  mark_needed(graph, e->variant, needed, needed + nodes_n);
  hlo_set_precision(h, e->program->precision);
  for (size_t i = 0; i < inputs_n; i++) {
    const ttpu_shape_t *shape = graph->input_shapes[i];
    inputs[i] = hlo_parameter(h, shape->dtype, shape->rank, shape->dims,
                              e->variant->donated[i] ? "jax.buffer_donor = true" : NULL);
  }
  if (e->variant->slot_count) {
    const int64_t dims[] = {e->variant->slot_count};
    const hlo_val_t packed = hlo_parameter(h, TTPU_U64, 1, dims, NULL);
    int32_t slot = 0;
    for (int32_t i = 0; i < graph->node_count; i++)
      for (int32_t j = 0; j < graph->nodes[i].inst->param_count; j++) {
        const int32_t p = graph->nodes[i].first_param + j;
        if (!e->program->runtime[p]) continue;
        if (needed[i]) params[p] = unpack(h, packed, slot, graph->nodes[i].inst->param_kinds[j]);
        slot++;
      }
  }
  for (int32_t i = 0; i < graph->node_count && !hlo_failed(h); i++)
    if (needed[i])
      TTPU_TRY_GOTO(status, out, emit_node(h, &graph->nodes[i], inputs, results, params, graph->params));
  for (size_t i = 0; i < outs_n; i++) outs[i] = results[e->variant->results[i]];
  status = hlo_finish(h, (int)outs_n, outs, out_text, out_size);
out:
  ttpu_free(values);
  ttpu_free(needed);
  return status;
}

ttpu_status_t *ttpu_program_check(const ttpu_inst_t *inst) {
  hlo_t *h = hlo_create();
  const size_t operands_n = (size_t)inst->operand_count, results_n = (size_t)inst->result_count,
               params_n = (size_t)inst->param_count;
  hlo_val_t *values = ttpu_alloc_zero(operands_n + results_n + params_n + 1, sizeof *values);
  int32_t *codes = ttpu_alloc(operands_n * sizeof *codes + 4);
  uint64_t *constants = ttpu_alloc_zero(params_n + 1, sizeof *constants);
  ttpu_status_t *status = NULL;
  if (!h || !values || !codes || !constants) {
    status = TTPU_OUT_OF_HOST_MEMORY();
    goto out;
  }
  for (size_t i = 0; i < operands_n; i++) {
    codes[i] = (int32_t)(2 * i);
    values[i] = hlo_parameter(h, inst->operands[i].dtype, inst->operands[i].rank, inst->operands[i].dims, NULL);
  }
  const ttpu_node_t node = {(ttpu_inst_t *)inst, codes, 0, 0};
  /* every parameter as an input: the form that constrains the lowering most */
  for (size_t i = 0; i < params_n; i++)
    values[operands_n + results_n + i] =
        hlo_parameter(h, inst->param_kinds[i] == 'd' ? TTPU_F64 : TTPU_I64, 0, NULL, NULL);
  TTPU_TRY_GOTO(status, out, emit_node(h, &node, values, values + operands_n, values + operands_n + results_n, constants));
  const char *text;
  size_t size;
  hlo_val_t *outs = values + operands_n;
  int count = 0;
  for (size_t i = 0; i < results_n; i++)
    if (outs[i]) outs[count++] = outs[i];
  status = hlo_finish(h, count, outs, &text, &size);
out:
  hlo_free(h);
  ttpu_free(values);
  ttpu_free(codes);
  ttpu_free(constants);
  return status;
}

/* --- variants ---------------------------------------------------------------------------------------------- */

/* True when |variant| returns every live result. */
static bool covers(const variant_t *variant, const ttpu_graph_t *graph) {
  int32_t next = 0;
  for (int32_t i = 0; i < graph->result_count; i++) {
    if (next < variant->result_count && variant->results[next] == i)
      next++;
    else if (graph->results[i])
      return false;
  }
  return true;
}

/* An input that only the graph still holds may be consumed. */
static bool is_donatable(const ttpu_value_t *value) { return value->refs == 1; }

static int64_t result_bytes(const ttpu_graph_t *graph, int32_t number) {
  const ttpu_node_t *node = ttpu_graph_producer(graph, number);
  const ttpu_shape_t *shape = &node->inst->results[number - node->first_result].shape;
  return ttpu_dims_numel(shape->rank, shape->dims) * ttpu_dtype_bytes(shape->dtype);
}

static ttpu_status_t *variant_create(const ttpu_program_t *program, const ttpu_graph_t *graph,
                                     variant_t **out_variant) {
  *out_variant = NULL;
  size_t results = 0, slots = 0;
  for (int32_t i = 0; i < graph->result_count; i++) results += graph->results[i] != NULL;
  for (int32_t i = 0; i < program->param_count; i++) slots += program->runtime[i];
  const size_t inputs = (size_t)graph->input_count;
  char *block = ttpu_alloc_zero(1, sizeof(variant_t) + results * 12 + slots * 12 + inputs + 16);
  if (!block) return TTPU_OUT_OF_HOST_MEMORY();
  variant_t *variant = (variant_t *)(void *)block;
  variant->result_bytes = (int64_t *)(void *)(block + sizeof *variant);
  variant->bits = (uint64_t *)(variant->result_bytes + results);
  variant->results = (int32_t *)(variant->bits + slots);
  variant->slots = variant->results + results;
  variant->donated = (uint8_t *)(variant->slots + slots);
  for (int32_t i = 0; i < graph->result_count; i++)
    if (graph->results[i]) {
      variant->result_bytes[variant->result_count] = result_bytes(graph, i);
      variant->results[variant->result_count++] = i;
    }
  for (int32_t i = 0; i < program->param_count; i++)
    if (program->runtime[i]) variant->slots[variant->slot_count++] = i;
  for (size_t i = 0; i < inputs; i++) {
    const ttpu_shape_t *shape = graph->input_shapes[i];
    const int64_t bytes = ttpu_dims_numel(shape->rank, shape->dims) * ttpu_dtype_bytes(shape->dtype);
    bool fits = false; /* donating what no result can take only makes the plugin warn */
    for (int32_t j = 0; j < variant->result_count && !fits; j++) fits = variant->result_bytes[j] == bytes;
    variant->donated[i] = bytes >= 4096 && fits && is_donatable(graph->inputs[i]);
  }
  *out_variant = variant;
  return NULL;
}

static ttpu_status_t *variant_key(const ttpu_program_t *program, const variant_t *variant, ttpu_hash_t *out_key) {
  const size_t count = 4 + (size_t)variant->result_count + (size_t)program->input_count + (size_t)program->param_count * 2;
  uint64_t *words = ttpu_alloc(count * sizeof *words);
  if (!words) return TTPU_OUT_OF_HOST_MEMORY();
  size_t n = 0;
  words[n++] = program->hash.lo;
  words[n++] = program->hash.hi;
  words[n++] = (uint64_t)program->precision;
  words[n++] = (uint64_t)variant->result_count;
  for (int32_t i = 0; i < variant->result_count; i++) words[n++] = (uint64_t)variant->results[i];
  for (int32_t i = 0; i < program->input_count; i++) words[n++] = variant->donated[i];
  for (int32_t i = 0; i < program->param_count; i++) {
    words[n++] = program->runtime[i];
    words[n++] = program->runtime[i] ? 0 : program->base[i];
  }
  *out_key = ttpu_hash_words(words, n);
  ttpu_free(words);
  return NULL;
}

static ttpu_status_t *compile(ttpu_program_t *program, const ttpu_graph_t *graph, ttpu_cache_t *cache, int device,
                              const char *why, variant_t **out_variant) {
  if (program->variant_count >= MAX_VARIANTS) drop_variants(program);
  variant_t *variant;
  TTPU_TRY(variant_create(program, graph, &variant));
  emission_t e = {graph, program, variant, NULL};
  ttpu_hash_t key;
  ttpu_tier_e tier;
  ttpu_status_t *status = variant_key(program, variant, &key);
  if (!status) status = ttpu_cache_get(cache, key, device, why, emit, &e, &variant->executable, &tier);
  hlo_free(e.module);
  if (status) {
    variant_free(variant);
    return status;
  }
  variant->next = program->variants;
  program->variants = variant;
  program->variant_count++;
  *out_variant = variant;
  return NULL;
}

/* --- run ------------------------------------------------------------------------------------------------- */

/* The packed parameters, uploaded again only when their bits change. */
static ttpu_status_t *pack(ttpu_programs_t *programs, variant_t *variant, const ttpu_graph_t *graph,
                           ttpu_client_t *client, int device) {
  bool changed = !variant->packed || variant->packed_device != device;
  for (int32_t i = 0; i < variant->slot_count; i++) {
    const uint64_t bits = graph->params[variant->slots[i]];
    changed |= variant->bits[i] != bits;
    variant->bits[i] = bits;
  }
  if (!changed) return NULL;
  ttpu_buffer_release(variant->packed);
  variant->packed = NULL;
  const int64_t dims[] = {variant->slot_count};
  programs->param_uploads++;
  variant->packed_device = device;
  return ttpu_buffer_from_host(client, device, TTPU_U64, 1, dims, variant->bits, &variant->packed);
}

static const char *describe_widening(const ttpu_graph_t *graph, int32_t param, char *out, size_t size) {
  int32_t node = 0;
  while (node + 1 < graph->node_count && graph->nodes[node + 1].first_param <= param) node++;
  snprintf(out, size, "parameter %d of %s (operation %d) became an input", (int)(param - graph->nodes[node].first_param),
           op_rows[graph->nodes[node].inst->row].aten, (int)node);
  return out;
}

ttpu_status_t *ttpu_program_run(ttpu_programs_t *programs, ttpu_client_t *client, ttpu_cache_t *cache,
                                ttpu_graph_t *graph, int device, int precision,
                                void (*set_buffer)(ttpu_value_t *value, ttpu_buffer_t *buffer)) {
  ttpu_program_t *program = find(programs, graph, precision);
  const char *why = "other results are alive";
  char text[128];
  if (!program) {
    TTPU_TRY(create(programs, graph, precision, cache, &program));
    why = "first sight";
  } else if (program != programs->newest) {
    unlink_use(programs, program);
    link_newest(programs, program);
  }
  const int32_t widened = widen(program, graph);
  if (widened >= 0) {
    drop_variants(program);
    store_note(program, cache);
    why = describe_widening(graph, widened, text, sizeof text);
  }
  variant_t *variant = program->variants;
  while (variant && !covers(variant, graph)) variant = variant->next;
  if (variant) {
    programs->hits++;
  } else {
    programs->misses++;
    if (program->param_count && why[0] == 'f') store_note(program, cache);
    TTPU_TRY(compile(program, graph, cache, device, why, &variant));
  }

  if (variant->slot_count) TTPU_TRY(pack(programs, variant, graph, client, device));
  enum { FIXED = 64 };
  ttpu_buffer_t *arguments_fixed[FIXED + 1], *outputs_fixed[FIXED];
  int64_t keep_fixed[FIXED];
  ttpu_buffer_t **arguments = arguments_fixed, **outputs = outputs_fixed;
  int64_t *keep = keep_fixed;
  void *block = NULL;
  const size_t inputs = (size_t)graph->input_count, results = (size_t)variant->result_count;
  if (inputs > FIXED || results > FIXED) {
    if (!(block = ttpu_alloc((inputs * 2 + results + 1) * 8))) return TTPU_OUT_OF_HOST_MEMORY();
    arguments = block;
    outputs = arguments + inputs + 1;
    keep = (int64_t *)(void *)(outputs + results);
  }
  int keep_count = 0;
  for (size_t i = 0; i < inputs; i++) {
    arguments[i] = graph->inputs[i]->buffer;
    if (variant->donated[i] && !is_donatable(graph->inputs[i])) keep[keep_count++] = (int64_t)i;
  }
  if (variant->slot_count) arguments[inputs] = variant->packed;
  ttpu_status_t *status =
      ttpu_executable_run(variant->executable, device, (int)inputs + (variant->slot_count > 0), arguments, keep_count,
                          keep, variant->result_bytes, outputs);
  if (!status)
    for (size_t i = 0; i < results; i++) {
      ttpu_value_t *value = graph->results[variant->results[i]];
      if (value)
        set_buffer(value, outputs[i]);
      else
        ttpu_buffer_release(outputs[i]);
    }
  ttpu_free(block);
  return status;
}
