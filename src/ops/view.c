/* view.c: emits what graph/view.c planned. Argument numbers of tpu::read and tpu::write are in view_args below; the
 * recorder (runtime/storage.c) builds the instances. */
#include "graph/view.h"

#include <string.h>

#include "ops/ops.h"
#include "ops/view.h"

/* The base in memory order, reshaped to the plan's factors (padded when their product is larger). */
static hlo_val_t base_factors(hlo_t *h, const op_call_t *c, hlo_val_t base) {
  const int64_t *order, *factors;
  const int order_count = op_ints(c, VIEW_MEMORY_ORDER, &order);
  const int count = op_ints(c, VIEW_FACTORS, &factors);
  if (order_count) {
    int permutation[TTPU_MAX_RANK];
    for (int i = 0; i < order_count; i++) permutation[i] = (int)order[i];
    base = hlo_transpose(h, base, permutation);
  }
  const int64_t numel = hlo_numel(h, base), padded = ttpu_dims_numel(count, factors);
  if (padded != numel) base = hlo_pad_dim(h, hlo_flatten(h, base), 0, 0, 0, padded - numel);
  return hlo_reshape(h, base, count, factors);
}

/* Back from factors to the base's own dims. */
static hlo_val_t factors_base(hlo_t *h, const op_call_t *c, hlo_val_t x, int rank, const int64_t *dims) {
  const int64_t numel = ttpu_dims_numel(rank, dims), *order;
  if (hlo_numel(h, x) != numel) x = hlo_slice_dim(h, hlo_flatten(h, x), 0, 0, numel, 1);
  const int order_count = op_ints(c, VIEW_MEMORY_ORDER, &order);
  if (!order_count) return hlo_reshape(h, x, rank, dims);
  int64_t memory_dims[TTPU_MAX_RANK];
  int inverse[TTPU_MAX_RANK];
  for (int i = 0; i < order_count; i++) {
    memory_dims[i] = dims[order[i]];
    inverse[order[i]] = i;
  }
  return hlo_transpose(h, hlo_reshape(h, x, rank, memory_dims), inverse);
}

static bool starts_are_constant(const op_call_t *c, int count) {
  const int first = c->inst->args[VIEW_STARTS].first;
  for (int i = 0; i < count; i++)
    if (c->params[first + i]) return false;
  return true;
}

static hlo_val_t start(hlo_t *h, const op_call_t *c, int i) {
  const int p = c->inst->args[VIEW_STARTS].first + i;
  return c->params[p] ? c->params[p] : hlo_const_int(h, TTPU_I64, (int64_t)c->constants[p]);
}

/* Extent that a slice with steps spans. */
static void spans(int count, const int64_t *sizes, const int64_t *steps, int64_t *out) {
  for (int i = 0; i < count; i++) out[i] = (sizes[i] - 1) * steps[i] + 1;
}

static hlo_val_t take_region(hlo_t *h, const op_call_t *c, hlo_val_t x, int count, const int64_t *sizes,
                             const int64_t *steps) {
  int64_t span[TTPU_VIEW_MAX_FACTORS], from[TTPU_VIEW_MAX_FACTORS], to[TTPU_VIEW_MAX_FACTORS];
  spans(count, sizes, steps, span);
  const uint64_t *constants = c->constants + c->inst->args[VIEW_STARTS].first;
  if (starts_are_constant(c, count)) {
    for (int i = 0; i < count; i++) {
      from[i] = (int64_t)constants[i];
      to[i] = from[i] + span[i];
    }
    return hlo_slice(h, x, from, to, steps);
  }
  hlo_val_t starts[TTPU_VIEW_MAX_FACTORS];
  for (int i = 0; i < count; i++) {
    starts[i] = start(h, c, i);
    from[i] = 0;
  }
  x = hlo_dynamic_slice(h, x, starts, span);
  return hlo_slice(h, x, from, span, steps);
}

/* Flat element indices of the view: offset + sum of iota * stride, in the dims of the view. */
static hlo_val_t element_indices(hlo_t *h, const op_call_t *c, int rank, const int64_t *sizes, const int64_t *strides) {
  hlo_val_t index = hlo_expand(h, start(h, c, 0), rank, sizes);
  for (int i = 0; i < rank; i++) {
    if (!strides[i] || sizes[i] == 1) continue;
    const hlo_val_t along = hlo_iota(h, TTPU_I64, rank, sizes, i);
    const hlo_val_t stride = hlo_const_int(h, TTPU_I64, strides[i]);
    index = hlo_add(h, index, hlo_mul(h, along, stride));
  }
  return index;
}

static hlo_val_t with_index_dim(hlo_t *h, hlo_val_t index) {
  return hlo_unsqueeze(h, index, hlo_rank(h, index));
}

void op_emit_view_read(hlo_t *h, const op_call_t *c) {
  const int64_t *sizes, *strides, *lengths, *steps, *factor_of, *view_dim;
  const int rank = op_ints(c, VIEW_SIZES, &sizes);
  op_ints(c, VIEW_STRIDES, &strides);
  hlo_val_t x = base_factors(h, c, op_tensor(h, c, VIEW_BASE));
  if (op_bool(c, VIEW_GATHER, false)) {
    static const int zero = 0;
    static const int64_t one = 1;
    const hlo_val_t index = with_index_dim(h, element_indices(h, c, rank, sizes, strides));
    x = hlo_gather(h, x, index, &(hlo_gather_t){.collapsed_count = 1, .collapsed_dims = &zero, .start_map_count = 1,
                                                .start_map = &zero, .slice_sizes = &one});
    op_ret(h, c, 0, x);
    return;
  }
  const int count = op_ints(c, VIEW_LENGTHS, &lengths);
  op_ints(c, VIEW_STEPS, &steps);
  const int n = op_ints(c, VIEW_FACTOR_OF, &factor_of);
  op_ints(c, VIEW_DIM, &view_dim);
  if (!op_bool(c, VIEW_WHOLE, false)) x = take_region(h, c, x, count, lengths, steps);
  /* drop factors without a dim, then put dims in view order */
  int64_t dims[TTPU_MAX_RANK];
  int rank_of[TTPU_VIEW_MAX_FACTORS], permutation[TTPU_MAX_RANK], map[TTPU_MAX_RANK], kept = 0;
  for (int f = 0; f < count; f++)
    for (int i = 0; i < n; i++)
      if (factor_of[i] == f) {
        rank_of[f] = kept;
        dims[kept++] = lengths[f];
      }
  x = hlo_reshape(h, x, kept, dims);
  for (int i = 0; i < n; i++) {
    permutation[i] = rank_of[factor_of[i]];
    map[i] = (int)view_dim[i];
  }
  x = hlo_transpose(h, x, permutation);
  op_ret(h, c, 0, hlo_broadcast_in(h, x, rank, sizes, map));
}

/* The value of the view's dims, arranged as the sliced factors. */
static hlo_val_t value_factors(hlo_t *h, const op_call_t *c, hlo_val_t x, int count, const int64_t *lengths) {
  const int64_t *factor_of, *view_dim;
  const int n = op_ints(c, VIEW_FACTOR_OF, &factor_of);
  op_ints(c, VIEW_DIM, &view_dim);
  int64_t dims[TTPU_MAX_RANK];
  int permutation[TTPU_MAX_RANK], at = 0;
  for (int i = 0; i < n; i++) dims[i] = hlo_dim(h, x, (int)view_dim[i]);
  x = hlo_reshape(h, x, n, dims);
  for (int f = 0; f < count; f++)
    for (int i = 0; i < n; i++)
      if (factor_of[i] == f) permutation[at++] = i;
  return hlo_reshape(h, hlo_transpose(h, x, permutation), count, lengths);
}

void op_emit_view_write(hlo_t *h, const op_call_t *c) {
  const int64_t *sizes, *strides, *lengths, *steps;
  const int rank = op_ints(c, VIEW_SIZES, &sizes);
  op_ints(c, VIEW_STRIDES, &strides);
  const int count = op_ints(c, VIEW_LENGTHS, &lengths);
  op_ints(c, VIEW_STEPS, &steps);
  const int base_rank = op_result_rank(c, 0);
  const int64_t *base_dims = op_result_dims(c, 0);
  hlo_val_t value = op_tensor(h, c, VIEW_VALUE);

  if (op_bool(c, VIEW_GATHER, false)) {
    static const int zero = 0;
    const hlo_val_t base = base_factors(h, c, op_tensor(h, c, VIEW_BASE));
    const hlo_val_t index = hlo_flatten(h, element_indices(h, c, rank, sizes, strides));
    const hlo_val_t flat = hlo_flatten(h, value);
    const hlo_val_t written = hlo_scatter(
        h, "", base, with_index_dim(h, index), flat,
        &(hlo_scatter_t){.inserted_count = 1, .inserted_dims = &zero, .map_count = 1, .scatter_map = &zero});
    op_ret(h, c, 0, factors_base(h, c, written, base_rank, base_dims));
    return;
  }
  value = value_factors(h, c, value, count, lengths);
  if (op_bool(c, VIEW_WHOLE, false)) {
    op_ret(h, c, 0, factors_base(h, c, value, base_rank, base_dims));
    return;
  }
  const hlo_val_t base = base_factors(h, c, op_tensor(h, c, VIEW_BASE));
  hlo_val_t starts[TTPU_VIEW_MAX_FACTORS];
  for (int i = 0; i < count; i++) starts[i] = start(h, c, i);
  bool stepped = false;
  for (int i = 0; i < count; i++) stepped |= steps[i] > 1;
  if (stepped) {
    /* spread the value over the span and keep the old elements between its steps */
    int64_t span[TTPU_VIEW_MAX_FACTORS], gaps[TTPU_VIEW_MAX_FACTORS], none[TTPU_VIEW_MAX_FACTORS] = {0};
    spans(count, lengths, steps, span);
    for (int i = 0; i < count; i++) gaps[i] = steps[i] - 1;
    const hlo_val_t old = hlo_dynamic_slice(h, base, starts, span);
    const hlo_val_t yes = hlo_full(h, TTPU_BOOL, count, lengths, 1);
    const hlo_val_t no = hlo_const(h, TTPU_BOOL, 0);
    const hlo_val_t mask = hlo_pad(h, yes, no, none, none, gaps);
    const hlo_val_t zero = hlo_const(h, hlo_dtype(h, value), 0);
    value = hlo_select(h, mask, hlo_pad(h, value, zero, none, none, gaps), old);
  }
  const hlo_val_t written = hlo_dynamic_update_slice(h, base, value, starts);
  op_ret(h, c, 0, factors_base(h, c, written, base_rank, base_dims));
}

/* Memory of one dtype as another: complex numbers are pairs of reals, bool is a byte. Result is flat. */
void op_emit_view_as(hlo_t *h, const op_call_t *c) {
  hlo_val_t x = hlo_flatten(h, op_tensor(h, c, 0));
  const ttpu_dtype_e from = hlo_dtype(h, x), to = op_result_dtype(c, 0);
  if (ttpu_dtype_is_complex(from)) {
    const hlo_val_t re = hlo_unsqueeze(h, hlo_real(h, x), 1);
    const hlo_val_t im = hlo_unsqueeze(h, hlo_imag(h, x), 1);
    x = hlo_flatten(h, hlo_concat(h, 2, (hlo_val_t[]){re, im}, 1));
  } else if (from == TTPU_BOOL) {
    x = hlo_convert(h, x, TTPU_U8);
  }
  const ttpu_dtype_e target = ttpu_dtype_is_complex(to) ? ttpu_dtype_real(to) : to == TTPU_BOOL ? TTPU_U8 : to;
  const ttpu_dtype_e have = hlo_dtype(h, x);
  const int64_t have_bytes = ttpu_dtype_bytes(have), want_bytes = ttpu_dtype_bytes(target);
  if (have != target) {
    if (want_bytes > have_bytes) {
      const int64_t ratio = want_bytes / have_bytes, numel = hlo_numel(h, x) / ratio;
      if (hlo_numel(h, x) % ratio) x = hlo_slice_dim(h, x, 0, 0, numel * ratio, 1);
      x = hlo_reshape(h, x, 2, (int64_t[]){numel, ratio});
    }
    x = hlo_flatten(h, hlo_bitcast(h, x, target));
  }
  if (to == TTPU_BOOL) {
    x = hlo_convert(h, x, TTPU_BOOL);
  } else if (ttpu_dtype_is_complex(to)) {
    const int64_t numel = hlo_numel(h, x) / 2;
    if (hlo_numel(h, x) % 2) x = hlo_slice_dim(h, x, 0, 0, numel * 2, 1);
    x = hlo_reshape(h, x, 2, (int64_t[]){numel, 2});
    const hlo_val_t re = hlo_squeeze(h, hlo_slice_dim(h, x, 1, 0, 1, 1), 1);
    const hlo_val_t im = hlo_squeeze(h, hlo_slice_dim(h, x, 1, 1, 2, 1), 1);
    x = hlo_complex(h, re, im);
  }
  op_ret(h, c, 0, x);
}

void op_emit_convert(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor_as(h, c, 0, op_result_dtype(c, 0));
  op_ret(h, c, 0, hlo_expand(h, x, op_result_rank(c, 0), op_result_dims(c, 0)));
}

void op_emit_zeros(hlo_t *h, const op_call_t *c) {
  op_ret(h, c, 0, hlo_full(h, op_result_dtype(c, 0), op_result_rank(c, 0), op_result_dims(c, 0), 0));
}

void op_emit_resize(hlo_t *h, const op_call_t *c) {
  const int64_t *order;
  const int order_count = op_ints(c, 1, &order);
  hlo_val_t x = op_tensor(h, c, 0);
  if (order_count) {
    int permutation[TTPU_MAX_RANK];
    for (int i = 0; i < order_count; i++) permutation[i] = (int)order[i];
    x = hlo_transpose(h, x, permutation);
  }
  x = hlo_flatten(h, x);
  const int64_t have = hlo_numel(h, x), want = op_result_dims(c, 0)[0];
  if (want < have) x = hlo_slice_dim(h, x, 0, 0, want, 1);
  if (want > have) x = hlo_pad_dim(h, x, 0, 0, 0, want - have);
  op_ret(h, c, 0, x);
}
