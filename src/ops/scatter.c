/* scatter.c: writes along one dimension.
 *
 * Every operator here is a *target* (which elements of a flat or row-wise view are written) and a StableHLO scatter of
 * updates onto it. Reductions of half types accumulate in f32 and are rounded once.
 */
#include <string.h>

#include "ops/part.h"

/* Where updates go. Element-wise: |base| is flat, |at| [n, 1] holds flat positions. Row-wise: |at| [n, 1] holds rows. */
typedef struct {
  hlo_scatter_t scatter;
  int dim, window_dims[TTPU_MAX_RANK];
  hlo_val_t at;
  int rank, update_rank;
  int64_t dims[TTPU_MAX_RANK], update_dims[TTPU_MAX_RANK]; /* of the base and of the updates as the caller sees them */
  bool flat;
} target_t;

static void keep_dims(hlo_t *h, target_t *t, hlo_val_t self) {
  t->rank = hlo_rank(h, self);
  if (t->rank) memcpy(t->dims, hlo_dims(h, self), (size_t)t->rank * sizeof *t->dims);
}

/* index[...] has a position of |dim| for every update: flat positions are the sum of coordinate times stride. */
static target_t target_elements(hlo_t *h, hlo_val_t self, int dim, hlo_val_t raw_index) {
  target_t t = {.flat = true};
  if (hlo_failed(h)) return t;
  keep_dims(h, &t, self);
  const hlo_val_t index = part_at_least_1d(h, raw_index);
  t.update_rank = hlo_rank(h, index);
  memcpy(t.update_dims, hlo_dims(h, index), (size_t)t.update_rank * sizeof *t.update_dims);
  const ttpu_dtype_e it = part_index_dtype(hlo_numel(h, self));
  hlo_val_t position = 0;
  for (int i = 0; i < t.update_rank; i++) {
    const hlo_val_t coordinate = i == dim ? hlo_convert(h, index, it) : hlo_iota_like(h, it, index, i);
    const int64_t inner = t.rank ? ttpu_dims_numel(t.rank - i - 1, t.dims + i + 1) : 1;
    const hlo_val_t stride = hlo_const_int(h, it, inner);
    const hlo_val_t part = inner == 1 ? coordinate : hlo_mul(h, coordinate, stride);
    position = position ? hlo_add(h, position, part) : part;
  }
  const int64_t column[] = {hlo_numel(h, index), 1};
  t.at = hlo_reshape(h, position, 2, column);
  return t;
}

/* index is a list of positions of |dim|; an update is a whole slice. */
static target_t target_rows(hlo_t *h, hlo_val_t self, int dim, hlo_val_t raw_index, bool wraps) {
  target_t t = {.dim = dim};
  if (hlo_failed(h)) return t;
  keep_dims(h, &t, self);
  const hlo_val_t list = hlo_flatten(h, raw_index);
  const int64_t extent = t.rank ? t.dims[dim] : 1;
  const hlo_val_t rows = wraps ? part_wrap(h, list, extent) : hlo_convert(h, list, part_index_dtype(extent));
  t.at = hlo_unsqueeze(h, rows, 1);
  t.update_rank = t.rank ? t.rank : 1;
  t.update_dims[0] = 1;
  if (t.rank) memcpy(t.update_dims, t.dims, (size_t)t.rank * sizeof *t.dims);
  t.update_dims[dim] = hlo_numel(h, list);
  return t;
}

/* |updates| is a rank-0 value, or has the target's update dims (longer ones are cut, as scatter's src may be). */
static hlo_val_t scatter_to(hlo_t *h, target_t *t, const char *op, hlo_val_t self, hlo_val_t updates) {
  if (hlo_failed(h)) return 0;
  if (ttpu_dims_numel(t->update_rank, t->update_dims) == 0) return self;
  const int64_t n = hlo_numel(h, self), one = 1;
  hlo_val_t u = updates;
  if (hlo_rank(h, u) == t->update_rank && hlo_rank(h, u) > 0) {
    const int64_t start[TTPU_MAX_RANK] = {0};
    if (memcmp(hlo_dims(h, u), t->update_dims, (size_t)t->update_rank * sizeof *t->update_dims) != 0) {
      u = hlo_slice(h, u, start, t->update_dims, NULL);
    }
  } else if (hlo_numel(h, u) == 1) {
    u = hlo_reshape(h, u, 0, NULL);
    u = hlo_expand(h, u, t->update_rank, t->update_dims);
  }
  hlo_val_t base;
  t->scatter = (hlo_scatter_t){.inserted_count = 1, .inserted_dims = &t->dim, .map_count = 1, .scatter_map = &t->dim};
  if (t->flat) {
    base = hlo_reshape(h, self, 1, &n);
    u = hlo_flatten(h, u);
  } else {
    base = t->rank ? self : hlo_reshape(h, self, 1, &one);
    for (int i = 0; i < t->update_rank; i++) {
      if (i != t->dim) t->window_dims[t->scatter.window_count++] = i;
    }
    t->scatter.window_dims = t->window_dims;
  }
  const hlo_val_t written = hlo_scatter(h, op, base, t->at, u, &t->scatter);
  return hlo_reshape(h, written, t->rank, t->dims);
}

/* --- scatter ------------------------------------------------------------------------------------------ */

/* Argument 3 is a tensor or a number; argument 4 of the reduce forms names the operation. */
EMIT(scatter) {
  if (part_ret_empty(h, c)) return;
  const char *op = op_detail(c);
  if (!strcmp(op, "reduce")) op = !strcmp(op_string(c, 4), "multiply") ? "multiply" : "add";
  const hlo_val_t raw = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = *op ? map_wide(hlo_dtype(h, raw)) : hlo_dtype(h, raw);
  const hlo_val_t self = hlo_convert(h, raw, t);
  const bool is_number = strstr(op_name(c), ".value") != NULL;
  const hlo_val_t updates = is_number ? op_scalar(h, c, 3, t) : op_tensor_as(h, c, 3, t);
  target_t target = target_elements(h, self, op_dim(c, 1, hlo_rank(h, self)), index);
  const hlo_val_t written = scatter_to(h, &target, op, self, updates);
  op_ret(h, c, 0, written);
}

/* --- reductions --------------------------------------------------------------------------------------- */

/* The element that |op| leaves alone. */
static hlo_val_t neutral(hlo_t *h, const char *op, ttpu_dtype_e t) {
  if (!strcmp(op, "maximum")) return hlo_lowest(h, t);
  if (!strcmp(op, "minimum")) return hlo_highest(h, t);
  return hlo_const(h, t, !strcmp(op, "multiply"));
}

/* What |name| makes of the updates that land on an element, together with its own value when |include_self|; an element
 * that nothing lands on stays as it is. */
static hlo_val_t reduce_to(hlo_t *h, target_t *target, const char *name, hlo_val_t self, hlo_val_t source,
                           bool include_self) {
  if (hlo_failed(h)) return 0;
  const ttpu_dtype_e t = hlo_dtype(h, self);
  const bool is_mean = !strcmp(name, "mean");
  const char *op = !strcmp(name, "prod") ? "multiply" : !strcmp(name, "amax") ? "maximum"
                 : !strcmp(name, "amin") ? "minimum" : "add";
  hlo_val_t base = self;
  if (!include_self) {
    const hlo_val_t nothing = neutral(h, op, t);
    base = scatter_to(h, target, "", self, nothing);
  }
  const hlo_val_t total = scatter_to(h, target, op, base, source);
  if (!is_mean) return total;
  const ttpu_dtype_e real = ttpu_dtype_real(t), count_type = ttpu_dtype_is_float(real) ? real : TTPU_I64;
  const hlo_val_t start = hlo_const(h, count_type, include_self), one = hlo_const(h, count_type, 1);
  const hlo_val_t none = hlo_expand_like(h, start, self);
  const hlo_val_t landed = scatter_to(h, target, "add", none, one);
  const hlo_val_t divisor = hlo_max(h, landed, one);
  if (map_is_inexact(t)) {
    const hlo_val_t d = hlo_convert(h, divisor, t);
    return hlo_div(h, total, d);
  }
  const hlo_val_t wide = hlo_convert(h, total, TTPU_I64);
  const hlo_val_t quotient = map_floor_divide(h, wide, divisor);
  return hlo_convert(h, quotient, t);
}

EMIT(scatter_reduce) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = map_wide(hlo_dtype(h, raw));
  const hlo_val_t self = hlo_convert(h, raw, t), source = op_tensor_as(h, c, 3, t);
  target_t target = target_elements(h, self, op_dim(c, 1, hlo_rank(h, self)), index);
  const hlo_val_t reduced = reduce_to(h, &target, op_string(c, 4), self, source, op_bool(c, 5, true));
  op_ret(h, c, 0, reduced);
}

/* --- index_* ------------------------------------------------------------------------------------------ */

EMIT(index_add) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = map_wide(hlo_dtype(h, raw));
  const hlo_val_t self = hlo_convert(h, raw, t), source = op_tensor_as(h, c, 3, t);
  const hlo_val_t alpha = op_scalar(h, c, 4, t);
  const hlo_val_t scaled = hlo_mul(h, source, alpha);
  target_t target = target_rows(h, self, op_dim(c, 1, hlo_rank(h, self)), index, false);
  const hlo_val_t written = scatter_to(h, &target, "add", self, scaled);
  op_ret(h, c, 0, written);
}

EMIT(index_copy) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t self = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  const hlo_val_t source = op_tensor_as(h, c, 3, op_result_dtype(c, 0));
  if (hlo_failed(h)) return;
  target_t target = target_rows(h, self, op_dim(c, 1, hlo_rank(h, self)), index, false);
  const hlo_val_t written = scatter_to(h, &target, "", self, source);
  op_ret(h, c, 0, written);
}

EMIT(index_fill) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t self = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  if (hlo_failed(h)) return;
  const bool is_number = strstr(op_name(c), "Scalar") != NULL;
  const ttpu_dtype_e t = hlo_dtype(h, self);
  const hlo_val_t value = is_number ? op_scalar(h, c, 3, t) : op_tensor_as(h, c, 3, t);
  target_t target = target_rows(h, self, op_dim(c, 1, hlo_rank(h, self)), index, true);
  const hlo_val_t written = scatter_to(h, &target, "", self, value);
  op_ret(h, c, 0, written);
}

EMIT(index_reduce) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = map_wide(hlo_dtype(h, raw));
  const hlo_val_t self = hlo_convert(h, raw, t), source = op_tensor_as(h, c, 3, t);
  target_t target = target_rows(h, self, op_dim(c, 1, hlo_rank(h, self)), index, false);
  const hlo_val_t reduced = reduce_to(h, &target, op_string(c, 4), self, source, op_bool(c, 5, true));
  op_ret(h, c, 0, reduced);
}
