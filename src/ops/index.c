/* index.c: reads and writes at positions given by tensors.
 *
 * Negative positions are wrapped where CPU PyTorch takes them. Bounds are checked outside (runtime), and a boolean
 * index whose count decides a size is turned into positions before it comes here.
 */
#include <string.h>

#include "ops/part.h"

/* --- advanced indexing -------------------------------------------------------------------------------- */

/* x[i, :, j]: which dimensions are indexed, by what, and where the dimensions of the broadcast index tensors go: in
 * place of the first indexed dimension when all of them are neighbours, else in front (NumPy's rule). */
typedef struct {
  int count, dims[TTPU_MAX_RANK]; /* indexed dimensions, ascending */
  int shape_rank, place;
  int64_t shape[TTPU_MAX_RANK]; /* of the broadcast index tensors */
  hlo_val_t starts;             /* [shape..., count] */
  int result_rank, window_count;
  int64_t result[TTPU_MAX_RANK]; /* dims of x[...] */
  int window_dims[TTPU_MAX_RANK]; /* of the result: those that were not indexed */
} indexing_t;

static bool is_mask(ttpu_dtype_e t) { return t == TTPU_BOOL || t == TTPU_U8; }

/* PyTorch's broadcast of |dims| into |shape|, growing both ways. */
static void grow_shape(hlo_t *h, indexing_t *x, int rank, const int64_t *dims) {
  if (rank > x->shape_rank) {
    const int more = rank - x->shape_rank;
    memmove(x->shape + more, x->shape, (size_t)x->shape_rank * sizeof *x->shape);
    for (int i = 0; i < more; i++) x->shape[i] = 1;
    x->shape_rank = rank;
  }
  for (int i = 0; i < rank; i++) {
    int64_t *to = &x->shape[x->shape_rank - rank + i];
    if (*to != dims[i] && *to != 1 && dims[i] != 1) hlo_fail(h, "shapes of the index tensors do not broadcast");
    if (*to == 1) *to = dims[i];
  }
}

static bool read_indices(hlo_t *h, const op_call_t *c, int arg, hlo_val_t self, indexing_t *x) {
  *x = (indexing_t){0};
  if (hlo_failed(h)) return false;
  const int rank = hlo_rank(h, self), listed = op_list_size(c, arg);
  hlo_val_t raw[TTPU_MAX_RANK];
  if (listed > rank) return hlo_fail(h, "too many indices for a tensor of dimension %d", rank) != 0;
  for (int j = 0; j < listed; j++) {
    if (!op_list_has(c, arg, j)) continue;
    const hlo_val_t index = op_list_tensor(h, c, arg, j);
    if (hlo_failed(h)) return false;
    if (is_mask(hlo_dtype(h, index))) {
      hlo_fail_code(h, TTPU_UNIMPLEMENTED, "a boolean index must be turned into positions first");
      return false;
    }
    grow_shape(h, x, hlo_rank(h, index), hlo_dims(h, index));
    raw[x->count] = index;
    x->dims[x->count++] = j;
  }
  if (x->count == 0) return hlo_fail(h, "no index tensor is given") != 0;
  const bool adjacent = x->dims[x->count - 1] - x->dims[0] == x->count - 1;
  x->place = adjacent ? x->dims[0] : 0;

  int64_t widest = 0;
  for (int k = 0; k < x->count; k++) widest = hlo_dim(h, self, x->dims[k]) > widest ? hlo_dim(h, self, x->dims[k]) : widest;
  hlo_val_t columns[TTPU_MAX_RANK];
  for (int k = 0; k < x->count; k++) {
    const hlo_val_t wrapped = part_wrap(h, raw[k], hlo_dim(h, self, x->dims[k]));
    const hlo_val_t index = hlo_convert(h, wrapped, part_index_dtype(widest));
    const hlo_val_t whole = hlo_expand(h, index, x->shape_rank, x->shape);
    columns[k] = hlo_unsqueeze(h, whole, x->shape_rank);
  }
  x->starts = x->count == 1 ? columns[0] : hlo_concat(h, x->count, columns, x->shape_rank);

  /* The result: unindexed dimensions before |place|, the index shape, the other unindexed dimensions. */
  int next = 0;
  for (int i = 0, seen = 0; i <= rank; i++) {
    if (seen == x->place && next == x->place) {
      for (int k = 0; k < x->shape_rank; k++) x->result[next++] = x->shape[k];
      seen = -1; /* the shape is placed once */
    }
    if (i == rank) break;
    bool indexed = false;
    for (int k = 0; k < x->count; k++) indexed |= x->dims[k] == i;
    if (indexed) continue;
    x->window_dims[x->window_count++] = next;
    x->result[next++] = hlo_dim(h, self, i);
    if (seen >= 0) seen++;
  }
  x->result_rank = next;
  return !hlo_failed(h);
}

EMIT(index) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t self = op_tensor(h, c, 0);
  indexing_t x;
  if (!read_indices(h, c, 1, self, &x)) return;
  int64_t sizes[TTPU_MAX_RANK];
  for (int i = 0; i < hlo_rank(h, self); i++) sizes[i] = hlo_dim(h, self, i);
  for (int k = 0; k < x.count; k++) sizes[x.dims[k]] = 1;
  const hlo_gather_t g = {.offset_count = x.window_count, .offset_dims = x.window_dims, .collapsed_count = x.count,
                          .collapsed_dims = x.dims, .start_map_count = x.count, .start_map = x.dims,
                          .slice_sizes = sizes};
  const hlo_val_t read = hlo_gather(h, self, x.starts, &g);
  op_ret(h, c, 0, read);
}

/* x[mask] = values with one boolean mask over dimensions [at, at + m): a select. A value with one row for each true
 * element is read at the number of true elements before it. */
static hlo_val_t put_masked(hlo_t *h, hlo_val_t self, hlo_val_t mask, int at, hlo_val_t values, bool accumulate) {
  const int rank = hlo_rank(h, self), m = hlo_rank(h, mask), result_rank = rank - m + 1;
  const int64_t *dims = hlo_dims(h, self);
  if (at + m > rank) return hlo_fail(h, "a mask of %d dimensions at dimension %d of %d", m, at, rank);
  /* The value as [before..., rows or 1, after...]. */
  const int given = hlo_rank(h, values), missing = result_rank - given;
  int64_t shape[TTPU_MAX_RANK];
  if (missing < 0) return hlo_fail(h, "a value of %d dimensions does not fit the indexed shape", given);
  for (int i = 0; i < result_rank; i++) shape[i] = i < missing ? 1 : hlo_dim(h, values, i - missing);
  hlo_val_t value = hlo_reshape(h, values, result_rank, shape);
  const hlo_val_t flag = hlo_convert(h, mask, TTPU_BOOL);
  if (shape[at] != 1) {
    const hlo_val_t flat = hlo_flatten(h, flag);
    const ttpu_dtype_e t = part_index_dtype(hlo_numel(h, flat));
    const hlo_val_t ones = hlo_convert(h, flat, t);
    const hlo_val_t seen = part_prefix(h, "add", ones, 0);
    const hlo_val_t one = hlo_const_int(h, t, 1), last = hlo_const_int(h, t, shape[at] - 1), zero = hlo_const_int(h, t, 0);
    const hlo_val_t before = hlo_sub(h, seen, one);
    const hlo_val_t not_less = hlo_max(h, before, zero);
    const hlo_val_t row = hlo_min(h, not_less, last);
    value = shape[at] > 0 ? hlo_index_select(h, value, row, at) : value;
  }
  /* Dimension |at| becomes the mask's dimensions (or ones). */
  int64_t wide[TTPU_MAX_RANK], mask_dims[TTPU_MAX_RANK];
  if (hlo_failed(h)) return 0;
  if (hlo_numel(h, value) == 0) return self;
  const bool is_row = hlo_dim(h, value, at) != 1 || shape[at] != 1;
  for (int i = 0; i < rank; i++) {
    const bool inside = i >= at && i < at + m;
    wide[i] = i < at ? hlo_dim(h, value, i) : inside ? (is_row ? dims[i] : 1) : hlo_dim(h, value, i - m + 1);
    mask_dims[i] = inside ? hlo_dim(h, flag, i - at) : 1;
  }
  const hlo_val_t spread = hlo_reshape(h, value, rank, wide);
  const hlo_val_t where = hlo_reshape(h, flag, rank, mask_dims);
  const hlo_val_t written = accumulate ? hlo_add(h, self, spread) : hlo_expand_like(h, spread, self);
  return hlo_select(h, where, written, self);
}

EMIT(index_put) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const bool accumulate = op_bool(c, 3, false);
  if (hlo_failed(h)) return;
  /* Sums of half types are rounded once. */
  const ttpu_dtype_e t = accumulate ? map_wide(hlo_dtype(h, raw)) : hlo_dtype(h, raw);
  const hlo_val_t self = hlo_convert(h, raw, t);
  const hlo_val_t values = op_tensor_as(h, c, 2, t);
  int tensors = 0, at = 0;
  for (int j = 0; j < op_list_size(c, 1); j++) {
    if (op_list_has(c, 1, j)) at = tensors++ ? at : j;
  }
  if (tensors == 1) {
    const hlo_val_t index = op_list_tensor(h, c, 1, at);
    if (hlo_failed(h)) return;
    if (is_mask(hlo_dtype(h, index))) {
      const hlo_val_t put = put_masked(h, self, index, at, values, accumulate);
      op_ret(h, c, 0, put);
      return;
    }
  }
  indexing_t x;
  if (!read_indices(h, c, 1, self, &x)) return;
  if (ttpu_dims_numel(x.result_rank, x.result) == 0) {
    op_ret(h, c, 0, raw);
    return;
  }
  /* Leading dimensions of size 1 that the indexed shape lacks are dropped, as an assignment does. */
  int64_t shape[TTPU_MAX_RANK];
  const int given = hlo_rank(h, values), extra = given > x.result_rank ? given - x.result_rank : 0;
  for (int i = extra; i < given; i++) shape[i - extra] = hlo_dim(h, values, i);
  const hlo_val_t fitting = extra ? hlo_reshape(h, values, given - extra, shape) : values;
  const hlo_val_t updates = hlo_expand(h, fitting, x.result_rank, x.result);
  const hlo_scatter_t s = {.window_count = x.window_count, .window_dims = x.window_dims, .inserted_count = x.count,
                           .inserted_dims = x.dims, .map_count = x.count, .scatter_map = x.dims};
  const hlo_val_t put = hlo_scatter(h, accumulate ? "add" : "", self, x.starts, updates, &s);
  op_ret(h, c, 0, put);
}

/* --- along one dimension ------------------------------------------------------------------------------ */

EMIT(index_select) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0), index = op_tensor(h, c, 2);
  const hlo_val_t x = part_at_least_1d(h, raw);
  const hlo_val_t list = part_at_least_1d(h, index);
  const hlo_val_t picked = hlo_index_select(h, x, list, op_dim(c, 1, hlo_rank(h, raw)));
  const hlo_val_t shaped = part_as_result(h, c, 0, picked);
  op_ret(h, c, 0, shaped);
}

EMIT(gather) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0), raw_index = op_tensor(h, c, 2);
  hlo_val_t x = part_at_least_1d(h, raw);
  const hlo_val_t index = part_at_least_1d(h, raw_index);
  if (hlo_failed(h)) return;
  const int dim = op_dim(c, 1, hlo_rank(h, raw));
  /* Along the other dimensions the index may be shorter. */
  for (int i = 0; i < hlo_rank(h, x) && i < hlo_rank(h, index); i++) {
    if (i != dim && hlo_dim(h, index, i) < hlo_dim(h, x, i)) x = hlo_slice_dim(h, x, i, 0, hlo_dim(h, index, i), 1);
  }
  const hlo_val_t read = hlo_take_along(h, x, index, dim);
  const hlo_val_t shaped = part_as_result(h, c, 0, read);
  op_ret(h, c, 0, shaped);
}

EMIT(take) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0), index = op_tensor(h, c, 1);
  const hlo_val_t flat = hlo_flatten(h, x);
  const hlo_val_t list = hlo_flatten(h, index);
  const hlo_val_t at = part_wrap(h, list, hlo_numel(h, flat));
  const hlo_val_t read = hlo_index_select(h, flat, at, 0);
  const hlo_val_t shaped = part_as_result(h, c, 0, read);
  op_ret(h, c, 0, shaped);
}

EMIT(put) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0), raw_index = op_tensor(h, c, 1);
  const bool accumulate = op_bool(c, 3, false);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = accumulate ? map_wide(hlo_dtype(h, raw)) : hlo_dtype(h, raw);
  const hlo_val_t self = hlo_convert(h, raw, t), source = op_tensor_as(h, c, 2, t);
  if (hlo_failed(h)) return;
  if (hlo_numel(h, raw_index) == 0) {
    op_ret(h, c, 0, raw);
    return;
  }
  const hlo_val_t flat = hlo_flatten(h, self);
  const hlo_val_t updates = hlo_flatten(h, source);
  const hlo_val_t list = hlo_flatten(h, raw_index);
  const hlo_val_t wrapped = part_wrap(h, list, hlo_numel(h, flat));
  const hlo_val_t at = hlo_unsqueeze(h, wrapped, 1);
  const int first = 0;
  const hlo_scatter_t s = {.inserted_count = 1, .inserted_dims = &first, .map_count = 1, .scatter_map = &first};
  const hlo_val_t written = hlo_scatter(h, accumulate ? "add" : "", flat, at, updates, &s);
  const hlo_val_t shaped = part_as_result(h, c, 0, written);
  op_ret(h, c, 0, shaped);
}

/* --- positions of true elements ----------------------------------------------------------------------- */

EMIT(masked_scatter) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t self = op_tensor(h, c, 0), mask = op_tensor_as(h, c, 1, TTPU_BOOL);
  const hlo_val_t source = op_tensor_as(h, c, 2, op_result_dtype(c, 0));
  if (hlo_failed(h)) return;
  const hlo_val_t base = hlo_expand(h, self, op_result_rank(c, 0), op_result_dims(c, 0));
  const hlo_val_t where = hlo_expand(h, mask, op_result_rank(c, 0), op_result_dims(c, 0));
  if (hlo_numel(h, source) == 0) {
    op_ret(h, c, 0, base);
    return;
  }
  const hlo_val_t flat = hlo_flatten(h, where), values = hlo_flatten(h, source);
  const ttpu_dtype_e t = part_index_dtype(hlo_numel(h, flat));
  const hlo_val_t ones = hlo_convert(h, flat, t);
  const hlo_val_t seen = part_prefix(h, "add", ones, 0);
  const hlo_val_t one = hlo_const_int(h, t, 1), zero = hlo_const_int(h, t, 0);
  const hlo_val_t last = hlo_const_int(h, t, hlo_numel(h, values) - 1);
  const hlo_val_t before = hlo_sub(h, seen, one);
  const hlo_val_t not_less = hlo_max(h, before, zero);
  const hlo_val_t at = hlo_min(h, not_less, last);
  const hlo_val_t taken = hlo_index_select(h, values, at, 0);
  const hlo_val_t shaped = part_as_result(h, c, 0, taken);
  const hlo_val_t written = hlo_select(h, where, shaped, base);
  op_ret(h, c, 0, written);
}

/* Column |k| of a table of positions: coordinate of dimension |k| of the flat |position| in |dims|. */
static hlo_val_t coordinate(hlo_t *h, hlo_val_t position, int rank, const int64_t *dims, int k) {
  const ttpu_dtype_e t = hlo_dtype(h, position);
  const hlo_val_t inner = hlo_const_int(h, t, ttpu_dims_numel(rank - k - 1, dims + k + 1));
  const hlo_val_t outer = hlo_div(h, position, inner);
  if (k == 0) return outer;
  const hlo_val_t extent = hlo_const_int(h, t, dims[k]);
  return hlo_rem(h, outer, extent);
}

EMIT(nonzero_static) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int64_t count = op_result_dims(c, 0)[0], *dims = hlo_dims(h, x);
  const int rank = hlo_rank(h, x);
  if (hlo_numel(h, x) == 0) {
    const hlo_val_t fill = hlo_const_int(h, TTPU_I64, op_int(c, 2, -1));
    op_ret(h, c, 0, fill);
    return;
  }
  const hlo_val_t mask = hlo_convert(h, x, TTPU_BOOL);
  const hlo_val_t flat = hlo_flatten(h, mask);
  const hlo_val_t narrow = part_positions(h, flat, count);
  const hlo_val_t position = hlo_convert(h, narrow, TTPU_I64);
  const hlo_val_t extent = hlo_const_int(h, TTPU_I64, hlo_numel(h, flat));
  const hlo_val_t is_found = hlo_lt(h, position, extent);
  const hlo_val_t fill = hlo_const_int(h, TTPU_I64, op_int(c, 2, -1));
  hlo_val_t columns[TTPU_MAX_RANK];
  for (int k = 0; k < rank; k++) {
    const hlo_val_t at = coordinate(h, position, rank, dims, k);
    const hlo_val_t kept = hlo_select(h, is_found, at, fill);
    columns[k] = hlo_unsqueeze(h, kept, 1);
  }
  const hlo_val_t table = rank == 1 ? columns[0] : hlo_concat(h, rank, columns, 1);
  op_ret(h, c, 0, table);
}

EMIT(repeat_interleave) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t repeats = op_tensor_as(h, c, 0, TTPU_I64);
  const hlo_val_t ends = part_prefix(h, "add", repeats, 0);
  const hlo_val_t slots = hlo_iota(h, TTPU_I64, 1, op_result_dims(c, 0), 0);
  const hlo_val_t owner = part_bisect(h, ends, slots, true);
  op_ret(h, c, 0, owner);
}

EMIT(triangle_indices) {
  if (part_ret_empty(h, c)) return;
  const int64_t dims[] = {op_int(c, 0, 0), op_int(c, 1, 0)}, offset = op_int(c, 2, 0);
  const bool lower = !strcmp(op_detail(c), "lower");
  const hlo_val_t below = part_lower(h, 2, dims, lower ? offset : offset - 1);
  const hlo_val_t mask = lower ? below : hlo_not(h, below);
  const hlo_val_t flat = hlo_flatten(h, mask);
  const hlo_val_t position = part_positions(h, flat, op_result_dims(c, 0)[1]);
  hlo_val_t rows[2];
  for (int k = 0; k < 2; k++) {
    const hlo_val_t at = coordinate(h, position, 2, dims, k);
    rows[k] = hlo_unsqueeze(h, at, 0);
  }
  const hlo_val_t table = hlo_concat(h, 2, rows, 0);
  op_ret(h, c, 0, table);
}
