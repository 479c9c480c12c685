/* distance.c: p-norm distances between all pairs of rows, and their gradients.
 *
 * A distance is the p-norm of the difference d, computed as one fused reduction over the pairs: nothing of the size
 * pairs x features is stored. Many rows with p = 2 go through a matrix product, as CPU PyTorch does from 25 rows on.
 */
#include <math.h>

#include "ops/nn.h"

enum { MANY_ROWS = 25, MODE_PRODUCT = 1, MODE_DIRECT = 2 };

/* Norm of |d| over its last dimension. */
static hlo_val_t norm_of(hlo_t *h, hlo_val_t d, double p) {
  const hlo_val_t size = hlo_abs(h, d);
  if (p == 0) {
    const hlo_val_t differs = hlo_ne(h, d, hlo_full_like(h, d, 0));
    return hlo_reduce_dim(h, "add", hlo_convert(h, differs, hlo_dtype(h, d)), -1);
  }
  if (p == 1) return hlo_reduce_dim(h, "add", size, -1);
  if (p == 2) return hlo_sqrt(h, hlo_reduce_dim(h, "add", nn_square(h, d), -1));
  if (isinf(p)) { /* sizes are not negative: 0 stands for the maximum of nothing */
    const hlo_val_t top = hlo_reduce_dim(h, "maximum", size, -1);
    return hlo_max(h, top, hlo_like(h, top, 0));
  }
  const hlo_val_t sum = hlo_reduce_dim(h, "add", hlo_pow(h, size, hlo_like(h, size, p)), -1);
  return hlo_pow(h, sum, hlo_like(h, sum, 1 / p));
}

/* Gradient of the norm |n| (spread over d's dims) in each component of |d|, times |g|. */
static hlo_val_t norm_back(hlo_t *h, hlo_val_t d, hlo_val_t n, hlo_val_t g, double p) {
  const hlo_val_t zero = hlo_full_like(h, d, 0), size = hlo_abs(h, d), sign = hlo_sign(h, d), flat = hlo_eq(h, n, zero);
  hlo_val_t slope;
  if (p == 0) return zero;
  if (p == 1) return hlo_mul(h, g, sign);
  if (isinf(p)) {
    slope = nn_keep(h, hlo_eq(h, size, n), sign);
    return hlo_mul(h, g, slope);
  }
  if (p == 2) {
    slope = hlo_div(h, d, n);
  } else {
    const hlo_val_t ratio = hlo_div(h, size, n);
    slope = hlo_mul(h, sign, hlo_pow(h, ratio, hlo_like(h, ratio, p - 1)));
    if (p < 1) slope = nn_keep(h, hlo_ne(h, d, zero), slope);
  }
  return hlo_mul(h, g, hlo_select(h, flat, zero, slope));
}

/* --- cdist: x1 [..., p, m], x2 [..., r, m] -> [..., p, r] --------------------------------------------------------- */

/* Row |x| [..., n, m] laid over the pairs: as [..., n, 1, m] (|axis| 0) or [..., 1, n, m] (|axis| 1), spread to |dims|.
 */
static hlo_val_t over_pairs(hlo_t *h, hlo_val_t x, int axis, int rank, const int64_t *dims) {
  return hlo_expand(h, hlo_unsqueeze(h, x, hlo_rank(h, x) - 1 - axis), rank, dims);
}

/* Dims of the differences: those of the distances, then the features. */
static int pair_dims(const int64_t *distance_dims, int rank, int64_t features, int64_t *out) {
  for (int i = 0; i < rank; i++) out[i] = distance_dims[i];
  out[rank] = features;
  return rank + 1;
}

static hlo_val_t by_product(hlo_t *h, hlo_val_t a, hlo_val_t b, int rank, const int64_t *dims) {
  int64_t a_dims[TTPU_MAX_RANK], b_dims[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++) a_dims[i] = b_dims[i] = dims[i];
  a_dims[rank - 1] = hlo_dim(h, a, -1), b_dims[rank - 2] = dims[rank - 1], b_dims[rank - 1] = hlo_dim(h, b, -1);
  a = hlo_expand(h, a, rank, a_dims), b = hlo_expand(h, b, rank, b_dims);
  const hlo_val_t aa = hlo_unsqueeze(h, hlo_reduce_dim(h, "add", nn_square(h, a), -1), rank - 1);
  const hlo_val_t bb = hlo_unsqueeze(h, hlo_reduce_dim(h, "add", nn_square(h, b), -1), rank - 2);
  const hlo_val_t ab = hlo_matmul(h, a, hlo_swap(h, b, -1, -2)), squares = hlo_add(h, aa, bb);
  const hlo_val_t left = hlo_sub(h, squares, nn_scale(h, ab, 2));
  return hlo_sqrt(h, hlo_max(h, left, hlo_like(h, left, 0)));
}

/* x1, x2, p, compute_mode */
void op_emit_cdist(hlo_t *h, const op_call_t *c) {
  const hlo_val_t a = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const hlo_val_t b = op_tensor_as(h, c, 1, hlo_dtype(h, a));
  const int rank = op_result_rank(c, 0);
  const int64_t *dims = op_result_dims(c, 0), mode = op_int(c, 3, 0);
  if (ttpu_dims_numel(rank, dims) == 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  const double p = op_number(h, c, 2, 2);
  const bool many = dims[rank - 2] > MANY_ROWS || dims[rank - 1] > MANY_ROWS;
  if (p == 2 && (mode == MODE_PRODUCT || (mode != MODE_DIRECT && many))) {
    op_ret(h, c, 0, by_product(h, a, b, rank, dims));
    return;
  }
  int64_t pairs[TTPU_MAX_RANK];
  pair_dims(dims, rank, hlo_dim(h, a, -1), pairs);
  const hlo_val_t left = over_pairs(h, a, 0, rank + 1, pairs), right = over_pairs(h, b, 1, rank + 1, pairs);
  op_ret(h, c, 0, norm_of(h, hlo_sub(h, left, right), p));
}

/* |x| summed over the leading dimensions that |dims| does not have, or has as 1. */
static hlo_val_t sum_to(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims) {
  int reduced[TTPU_MAX_RANK], count = 0;
  const int extra = hlo_rank(h, x) - rank;
  for (int i = 0; i < hlo_rank(h, x); i++)
    if (i < extra || (dims[i - extra] == 1 && hlo_dim(h, x, i) != 1)) reduced[count++] = i;
  return hlo_reshape(h, count ? nn_sum(h, x, count, reduced) : x, rank, dims);
}

/* grad, x1, x2, p, cdist -> the gradient of x1 */
void op_emit_cdist_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t a = nn_tensor(h, c, 1);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, a);
  const hlo_val_t b = op_tensor_as(h, c, 2, type), n = op_tensor_as(h, c, 4, type), g = op_tensor_as(h, c, 0, type);
  const int rank = hlo_rank(h, n);
  int64_t pairs[TTPU_MAX_RANK];
  if (hlo_failed(h) || hlo_numel(h, n) == 0 || hlo_numel(h, a) == 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  const int wide = pair_dims(hlo_dims(h, n), rank, hlo_dim(h, a, -1), pairs);
  const hlo_val_t left = over_pairs(h, a, 0, wide, pairs), d = hlo_sub(h, left, over_pairs(h, b, 1, wide, pairs));
  const hlo_val_t size = nn_spread_dim(h, n, d, rank), slope = nn_spread_dim(h, g, d, rank);
  const hlo_val_t dx = hlo_reduce_dim(h, "add", norm_back(h, d, size, slope, op_number(h, c, 3, 2)), rank - 1);
  op_ret(h, c, 0, sum_to(h, dx, op_result_rank(c, 0), op_result_dims(c, 0)));
}

/* --- pdist: distances of the pairs i < j of n rows, row by row ---------------------------------------------------- */

/* i and j of each pair. Pairs before row i number i (2n - i - 1) / 2; its inverse starts from a root in f64 and is
 * corrected by one where the root was rounded across a whole number. */
static void pair_indices(hlo_t *h, int64_t n, int64_t count, hlo_val_t *out_i, hlo_val_t *out_j) {
  const hlo_val_t k = hlo_iota(h, TTPU_I64, 1, &count, 0), m = hlo_const_int(h, TTPU_I64, 2 * n - 1);
  const hlo_val_t inner =
      nn_from(h, (double)(2 * n - 1) * (double)(2 * n - 1), nn_scale(h, hlo_convert(h, k, TTPU_F64), 8));
  const hlo_val_t root = nn_scale(h, nn_from(h, (double)(2 * n - 1), hlo_sqrt(h, inner)), 0.5);
  hlo_val_t i = hlo_convert(h, root, TTPU_I64), before = 0;
  for (int step = 0; step < 2; step++) { /* first down where too far, then up where not far enough */
    const hlo_val_t probe = step ? nn_plus(h, i, 1) : i;
    before = hlo_div(h, hlo_mul(h, probe, hlo_sub(h, m, probe)), hlo_const_int(h, TTPU_I64, 2));
    const hlo_val_t wrong = step ? hlo_le(h, before, k) : hlo_gt(h, before, k);
    i = hlo_add(h, i, nn_scale(h, hlo_convert(h, wrong, TTPU_I64), step ? 1 : -1));
  }
  before = hlo_div(h, hlo_mul(h, i, hlo_sub(h, m, i)), hlo_const_int(h, TTPU_I64, 2));
  *out_i = i;
  *out_j = nn_plus(h, hlo_add(h, hlo_sub(h, k, before), i), 1);
}

/* self, p */
void op_emit_pdist(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, x, 0), count = n * (n - 1) / 2;
  if (count <= 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  hlo_val_t i, j;
  pair_indices(h, n, count, &i, &j);
  const hlo_val_t left = hlo_index_select(h, x, i, 0), d = hlo_sub(h, left, hlo_index_select(h, x, j, 0));
  op_ret(h, c, 0, norm_of(h, d, op_number(h, c, 1, 2)));
}

/* grad, self, p, pdist */
void op_emit_pdist_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 1);
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, x, 0), count = n * (n - 1) / 2;
  if (count <= 0 || hlo_numel(h, x) == 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  hlo_val_t i, j;
  pair_indices(h, n, count, &i, &j);
  const hlo_val_t left = hlo_index_select(h, x, i, 0), d = hlo_sub(h, left, hlo_index_select(h, x, j, 0));
  const hlo_val_t size = nn_spread_dim(h, op_tensor_as(h, c, 3, hlo_dtype(h, x)), d, 1);
  const hlo_val_t slope = nn_spread_dim(h, op_tensor_as(h, c, 0, hlo_dtype(h, x)), d, 1);
  const hlo_val_t g = norm_back(h, d, size, slope, op_number(h, c, 2, 2));
  const int axis = 0, window = 1;
  const hlo_scatter_t s = {.window_count = 1,
                           .inserted_count = 1,
                           .map_count = 1,
                           .window_dims = &window,
                           .inserted_dims = &axis,
                           .scatter_map = &axis};
  const hlo_val_t zeros = hlo_full_like(h, x, 0);
  hlo_val_t dx = hlo_scatter(h, "add", zeros, hlo_unsqueeze(h, i, 1), g, &s);
  const hlo_val_t other = hlo_neg(h, g);
  dx = hlo_scatter(h, "add", dx, hlo_unsqueeze(h, j, 1), other, &s);
  op_ret(h, c, 0, dx);
}
