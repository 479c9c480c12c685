/* embedding.c: rows of a table by index, bags of them, and their gradients (scatter-adds of rows).
 * Indices are used as given: whether they are in range is checked where the mode asks for it, not here.
 */
#include "ops/nn.h"

enum { BAG_SUM = 0, BAG_MEAN = 1, BAG_MAX = 2 };

/* Adds (or whatever |op| is) row n of |updates| [n, d...] to row |index|[n] of |target|. */
static hlo_val_t scatter_rows(hlo_t *h, const char *op, hlo_val_t target, hlo_val_t index, hlo_val_t updates) {
  int window[TTPU_MAX_RANK];
  const int count = hlo_rank(h, updates) - 1, row = 0;
  for (int i = 0; i < count; i++) window[i] = i + 1;
  if (hlo_failed(h) || hlo_numel(h, updates) == 0) return target;
  const hlo_scatter_t s = {.window_count = count,
                           .inserted_count = 1,
                           .map_count = 1,
                           .window_dims = window,
                           .inserted_dims = &row,
                           .scatter_map = &row};
  return hlo_scatter(h, op, target, hlo_unsqueeze(h, index, 1), updates, &s);
}

static hlo_val_t rows_of(hlo_t *h, hlo_val_t table, hlo_val_t index) {
  if (hlo_failed(h)) return 0;
  if (hlo_numel(h, table) == 0 || hlo_numel(h, index) == 0) {
    int64_t dims[TTPU_MAX_RANK];
    for (int i = 0; i < hlo_rank(h, table); i++) dims[i] = i ? hlo_dim(h, table, i) : hlo_numel(h, index);
    return hlo_full(h, hlo_dtype(h, table), hlo_rank(h, table), dims, 0);
  }
  return hlo_index_select(h, table, index, 0);
}

/* Which |index| entries are not the padding row; 0 when there is no padding row. */
static hlo_val_t not_padding(hlo_t *h, hlo_val_t index, int64_t padding) {
  return padding >= 0 ? hlo_ne(h, index, hlo_const_int(h, hlo_dtype(h, index), padding)) : 0;
}

/* Rows [n, d] where |keep| [n] holds, else 0; all of them when |keep| is 0. */
static hlo_val_t keep_rows(hlo_t *h, hlo_val_t keep, hlo_val_t rows) {
  return keep ? nn_keep(h, nn_along(h, keep, rows, 0), rows) : rows;
}

/* How often entry n's row occurs in |index|: [n] in |type|. */
static hlo_val_t frequency(hlo_t *h, hlo_val_t index, int64_t rows, ttpu_dtype_e type) {
  const hlo_val_t zeros = hlo_full(h, type, 1, &rows, 0), ones = hlo_full(h, type, 1, hlo_dims(h, index), 1);
  return rows_of(h, scatter_rows(h, "add", zeros, index, ones), index);
}

static hlo_val_t by_row(hlo_t *h, hlo_val_t v, hlo_val_t rows) { return nn_along(h, v, rows, 0); }

/* Sum of |updates| [n, d] into a table of |rows| rows, each divided by its frequency where asked. */
static hlo_val_t table_gradient(hlo_t *h, hlo_val_t updates, hlo_val_t index, int64_t rows, int64_t padding,
                                bool by_frequency) {
  if (by_frequency) updates = hlo_div(h, updates, by_row(h, frequency(h, index, rows, hlo_dtype(h, updates)), updates));
  updates = keep_rows(h, not_padding(h, index, padding), updates);
  const int64_t dims[2] = {rows, hlo_dim(h, updates, 1)};
  return scatter_rows(h, "add", hlo_full(h, hlo_dtype(h, updates), 2, dims, 0), index, updates);
}

/* weight, indices, padding_idx, scale_grad_by_freq, sparse */
void op_emit_embedding(hlo_t *h, const op_call_t *c) {
  const hlo_val_t table = op_tensor(h, c, 0), index = hlo_flatten(h, op_tensor(h, c, 1));
  op_ret(h, c, 0, hlo_reshape(h, rows_of(h, table, index), op_result_rank(c, 0), op_result_dims(c, 0)));
}

/* grad_output, indices, num_weights, padding_idx, scale_grad_by_freq */
void op_emit_embedding_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t index = hlo_flatten(h, op_tensor(h, c, 1)), grad = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int64_t dims[2] = {hlo_numel(h, index), op_result_dims(c, 0)[1]}, rows = op_int(c, 2, 0);
  const hlo_val_t updates = hlo_reshape(h, grad, 2, dims);
  op_ret(h, c, 0, table_gradient(h, updates, index, rows, op_int(c, 3, -1), op_bool(c, 4, false)));
}

/* self, indices, max_norm, norm_type: rows named by an index are scaled down to at most max_norm. */
void op_emit_embedding_renorm(hlo_t *h, const op_call_t *c) {
  const hlo_val_t table = nn_tensor(h, c, 0), index = hlo_flatten(h, op_tensor(h, c, 1));
  if (hlo_failed(h)) return;
  const double most = op_number(h, c, 2, 0), p = op_number(h, c, 3, 2);
  const hlo_val_t size = hlo_abs(h, table);
  hlo_val_t norm;
  if (p == 2) {
    norm = hlo_sqrt(h, hlo_reduce_dim(h, "add", nn_square(h, table), 1));
  } else if (__builtin_isinf(p)) {
    norm = hlo_reduce_dim(h, "maximum", size, 1);
  } else {
    const hlo_val_t sum = hlo_reduce_dim(h, "add", hlo_pow(h, size, hlo_like(h, size, p)), 1);
    norm = hlo_pow(h, sum, hlo_like(h, sum, 1 / p));
  }
  const hlo_val_t none = hlo_full_like(h, norm, 0), named = hlo_full(h, hlo_dtype(h, norm), 1, hlo_dims(h, index), 1);
  const hlo_val_t hit = hlo_ne(h, scatter_rows(h, "maximum", none, index, named), none);
  const hlo_val_t long_rows = hlo_and(h, hit, hlo_gt(h, norm, hlo_like(h, norm, most)));
  const hlo_val_t limit = hlo_like(h, norm, most), scale = hlo_div(h, limit, nn_plus(h, norm, 1e-7));
  const hlo_val_t factor = hlo_select(h, long_rows, scale, hlo_full_like(h, scale, 1));
  op_ret(h, c, 0, hlo_mul(h, table, by_row(h, factor, table)));
}

/* --- bags: entry n belongs to the last bag whose offset is at most n ---------------------------------------------- */

/* [entries] i64 from offsets [bags]. An offset after the last entry (include_last_offset) starts no entry's bag. */
static hlo_val_t bag_of_entry(hlo_t *h, hlo_val_t offsets, int64_t entries) {
  const int64_t dims[2] = {entries, hlo_dim(h, offsets, 0)};
  const int column = 1;
  const hlo_val_t n = hlo_iota(h, TTPU_I64, 2, dims, 0), start = hlo_broadcast_in(h, offsets, 2, dims, &column);
  const hlo_val_t begun = hlo_convert(h, hlo_le(h, start, n), TTPU_I64);
  return nn_plus(h, hlo_reduce_dim(h, "add", begun, 1), -1);
}

/* Rank-1 |v| padded with zeros or cut to result |k|'s size. */
static void ret_line(hlo_t *h, const op_call_t *c, int k, hlo_val_t v) {
  if (!op_result_wanted(c, k) || hlo_failed(h)) return;
  const int64_t want = op_result_dims(c, k)[0], have = hlo_dim(h, v, 0);
  if (want > have) v = hlo_pad_dim(h, v, 0, 0, 0, want - have);
  if (want < have) v = hlo_slice_dim(h, v, 0, 0, want, 1);
  op_ret(h, c, k, v);
}

/* weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
 * -> output, offset2bag, bag_size, maximum_indices */
void op_emit_embedding_bag(hlo_t *h, const op_call_t *c) {
  const hlo_val_t table = nn_tensor(h, c, 0), index = op_tensor_as(h, c, 1, TTPU_I64),
                  offsets = op_tensor_as(h, c, 2, TTPU_I64);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, table);
  const int64_t mode = op_int(c, 4, BAG_SUM), entries = hlo_numel(h, index), bags = op_result_dims(c, 0)[0];
  const int64_t dims[2] = {bags, hlo_dim(h, table, 1)};
  const hlo_val_t bag = bag_of_entry(h, offsets, entries), real = not_padding(h, index, op_int(c, 8, -1));
  const hlo_val_t ones = hlo_full(h, TTPU_I64, 1, &entries, 1), no_bags = hlo_full(h, TTPU_I64, 1, &bags, 0);
  const hlo_val_t size = scatter_rows(h, "add", no_bags, bag, real ? nn_keep(h, real, ones) : ones);
  ret_line(h, c, 1, bag);
  ret_line(h, c, 2, size);
  hlo_val_t rows = rows_of(h, table, index);
  const hlo_val_t empty = nn_along(h, hlo_eq(h, size, no_bags), hlo_full(h, TTPU_BOOL, 2, dims, 0), 0);
  if (mode != BAG_MAX) {
    if (op_has(c, 6)) rows = hlo_mul(h, rows, by_row(h, op_tensor_as(h, c, 6, type), rows));
    hlo_val_t sum = scatter_rows(h, "add", hlo_full(h, type, 2, dims, 0), bag, keep_rows(h, real, rows));
    if (mode == BAG_MEAN) {
      const hlo_val_t count = hlo_max(h, size, hlo_const_int(h, TTPU_I64, 1));
      sum = hlo_div(h, sum, by_row(h, hlo_convert(h, count, type), sum));
    }
    op_ret(h, c, 0, sum);
    if (op_result_wanted(c, 3)) ret_line(h, c, 3, size);
    return;
  }
  const hlo_val_t lowest = hlo_full(h, type, 2, dims, -__builtin_inf());
  if (real) rows = hlo_select(h, nn_along(h, real, rows, 0), rows, hlo_full_like(h, rows, -__builtin_inf()));
  const hlo_val_t top = scatter_rows(h, "maximum", lowest, bag, rows);
  op_ret(h, c, 0, hlo_select(h, empty, hlo_full_like(h, top, 0), top));
  if (!op_result_wanted(c, 3) || op_result_rank(c, 3) != 2) return;
  /* the first entry of the bag that holds the maximum, then its index */
  const hlo_val_t hit = hlo_eq(h, rows, rows_of(h, top, bag)), at = hlo_iota_like(h, TTPU_I64, rows, 0);
  const hlo_val_t last = hlo_const_int(h, TTPU_I64, entries), candidates = hlo_select(h, hit, at, last);
  const hlo_val_t first = scatter_rows(h, "minimum", hlo_full(h, TTPU_I64, 2, dims, (double)entries), bag, candidates);
  const hlo_val_t found = hlo_min(h, first, hlo_const_int(h, TTPU_I64, entries > 0 ? entries - 1 : 0));
  const hlo_val_t names = hlo_reshape(h, rows_of(h, index, hlo_flatten(h, found)), 2, dims);
  op_ret(h, c, 3, hlo_select(h, empty, hlo_full_like(h, names, 0), names));
}

/* Argument numbers of the two overloads of the gradient. */
typedef struct {
  int bag, size, top, rows, frequency, mode, weights, padding;
} bag_args_t;

static void bag_backward(hlo_t *h, const op_call_t *c, bag_args_t a) {
  const hlo_val_t grad = nn_tensor(h, c, 0), index = op_tensor_as(h, c, 1, TTPU_I64);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, grad);
  const int64_t mode = op_int(c, a.mode, BAG_SUM), rows = op_int(c, a.rows, 0), padding = op_int(c, a.padding, -1);
  const hlo_val_t bag = op_tensor_as(h, c, a.bag, TTPU_I64);
  if (mode == BAG_MAX) {
    const int64_t bags = hlo_dim(h, grad, 0), width = hlo_dim(h, grad, 1), flat = rows * width;
    const hlo_val_t size = hlo_slice_dim(h, op_tensor_as(h, c, a.size, TTPU_I64), 0, 0, bags, 1);
    const hlo_val_t filled = hlo_gt(h, size, hlo_like(h, size, 0)), part = keep_rows(h, filled, grad);
    const hlo_val_t top = nn_scale(h, op_tensor_as(h, c, a.top, TTPU_I64), (double)width);
    const hlo_val_t at = hlo_flatten(h, hlo_add(h, top, hlo_iota_like(h, TTPU_I64, top, 1)));
    const hlo_val_t sum = scatter_rows(h, "add", hlo_full(h, type, 1, &flat, 0), at, hlo_flatten(h, part));
    op_ret(h, c, 0, hlo_reshape(h, sum, 2, op_result_dims(c, 0)));
    return;
  }
  hlo_val_t updates = rows_of(h, grad, bag);
  if (op_has(c, a.weights)) updates = hlo_mul(h, updates, by_row(h, op_tensor_as(h, c, a.weights, type), updates));
  if (mode == BAG_MEAN) {
    const hlo_val_t size = rows_of(h, op_tensor_as(h, c, a.size, type), bag);
    updates = hlo_div(h, updates, by_row(h, size, updates));
  }
  op_ret(h, c, 0, table_gradient(h, updates, index, rows, padding, op_bool(c, a.frequency, false)));
}

/* grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights,
 * padding_idx */
void op_emit_embedding_bag_dense_backward(hlo_t *h, const op_call_t *c) {
  bag_backward(h, c, (bag_args_t){2, 3, 4, 5, 6, 7, 8, 9});
}

/* grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse,
 * per_sample_weights, padding_idx */
void op_emit_embedding_bag_backward(hlo_t *h, const op_call_t *c) {
  if (op_bool(c, 9, false)) {
    hlo_fail_code(h, TTPU_UNIMPLEMENTED, "%s: sparse gradients are not supported; use sparse=False", op_name(c));
    return;
  }
  bag_backward(h, c, (bag_args_t){3, 4, 5, 6, 7, 8, 10, 11});
}

/* grad, weight, indices, offsets, offset2bag, mode, padding_idx */
void op_emit_embedding_bag_weights_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t grad = nn_tensor(h, c, 0), index = op_tensor_as(h, c, 2, TTPU_I64);
  if (hlo_failed(h)) return;
  const hlo_val_t rows = rows_of(h, op_tensor_as(h, c, 1, hlo_dtype(h, grad)), index);
  const hlo_val_t own = rows_of(h, grad, op_tensor_as(h, c, 4, TTPU_I64));
  const hlo_val_t dot = hlo_reduce_dim(h, "add", hlo_mul(h, rows, own), 1),
                  real = not_padding(h, index, op_int(c, 6, -1));
  op_ret(h, c, 0, real ? nn_keep(h, real, dot) : dot);
}
