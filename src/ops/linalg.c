/* linalg.c: triangular systems, Cholesky, LU with partial pivoting and what follows from it, the matrix exponential.
 * Orthogonal factorisations are in qr.c, eigenvalues and singular values in eigen.c.
 */
#include "ops/linalg.h"

#include <math.h>
#include <string.h>

/* --- shared pieces ------------------------------------------------------------------------------------ */

hlo_val_t linalg_conj(hlo_t *h, hlo_val_t x) {
  if (hlo_failed(h) || !ttpu_dtype_is_complex(hlo_dtype(h, x))) return x;
  const hlo_val_t re = hlo_real(h, x), im = hlo_imag(h, x);
  const hlo_val_t opposite = hlo_neg(h, im);
  return hlo_complex(h, re, opposite);
}

hlo_val_t linalg_adjoint(hlo_t *h, hlo_val_t x) {
  const hlo_val_t swapped = hlo_swap(h, x, -2, -1);
  return linalg_conj(h, swapped);
}

hlo_val_t linalg_lower(hlo_t *h, hlo_val_t x, int64_t diagonal) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t mask = part_lower(h, hlo_rank(h, x), hlo_dims(h, x), diagonal), zero = hlo_like(h, x, 0);
  return hlo_select(h, mask, x, zero);
}

hlo_val_t linalg_upper(hlo_t *h, hlo_val_t x, int64_t diagonal) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t mask = part_lower(h, hlo_rank(h, x), hlo_dims(h, x), diagonal - 1), zero = hlo_like(h, x, 0);
  return hlo_select(h, mask, zero, x);
}

hlo_val_t linalg_identity(hlo_t *h, ttpu_dtype_e t, int64_t batch, int64_t m, int64_t n) {
  const int64_t dims[] = {batch, m, n};
  const hlo_val_t row = hlo_iota(h, TTPU_I32, 3, dims, 1), column = hlo_iota(h, TTPU_I32, 3, dims, 2);
  const hlo_val_t equal = hlo_eq(h, row, column);
  return hlo_convert(h, equal, t);
}

hlo_val_t linalg_diagonal(hlo_t *h, hlo_val_t x) {
  if (hlo_failed(h)) return 0;
  const int64_t m = hlo_dim(h, x, 1), n = hlo_dim(h, x, 2), k = m < n ? m : n;
  const hlo_val_t rows = hlo_slice_dim(h, x, 1, 0, k, 1);
  const hlo_val_t square = hlo_slice_dim(h, rows, 2, 0, k, 1);
  const hlo_val_t row = hlo_iota_like(h, TTPU_I32, square, 1), column = hlo_iota_like(h, TTPU_I32, square, 2);
  const hlo_val_t is_diagonal = hlo_eq(h, row, column);
  const hlo_val_t kept = map_else_k(h, is_diagonal, square, 0);
  return hlo_reduce_dim(h, "add", kept, 2);
}

hlo_val_t linalg_matmul(hlo_t *h, hlo_val_t a, hlo_val_t b) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t operands[] = {a, b};
  const int64_t dims[] = {hlo_dim(h, a, 0), hlo_dim(h, a, 1), hlo_dim(h, b, 2)};
  return hlo_raw(h, "stablehlo.dot_general", 2, operands,
                 "{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
                 "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, "
                 "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}",
                 hlo_dtype(h, a), 3, dims);
}

hlo_val_t linalg_arg(hlo_t *h, const op_call_t *c, int i, int like) {
  hlo_val_t x = op_tensor(h, c, i);
  if (hlo_failed(h)) return 0;
  const int rank = hlo_rank(h, x);
  if (rank < 2) return hlo_fail(h, "expected a matrix, got a tensor of dimension %d", rank);
  if (like >= 0) {
    int64_t dims[TTPU_MAX_RANK];
    const int outer = op_result_rank(c, like) - 2;
    for (int k = 0; k < outer; k++) dims[k] = op_result_dims(c, like)[k];
    dims[outer] = hlo_dim(h, x, -2), dims[outer + 1] = hlo_dim(h, x, -1);
    x = hlo_expand(h, x, outer + 2, dims);
  }
  return part_batched(h, x, 2);
}

hlo_val_t linalg_square(hlo_t *h, hlo_val_t x) {
  if (hlo_failed(h)) return 0;
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) return hlo_mul(h, x, x);
  const hlo_val_t re = hlo_real(h, x), im = hlo_imag(h, x);
  const hlo_val_t re2 = hlo_mul(h, re, re), im2 = hlo_mul(h, im, im);
  return hlo_add(h, re2, im2);
}

hlo_val_t linalg_where(hlo_t *h, hlo_val_t like, int dim, const char *direction, hlo_val_t i) {
  if (hlo_failed(h)) return 0;
  int64_t dims[3] = {1, 1, 1};
  dims[dim] = hlo_dim(h, like, dim);
  const hlo_val_t place = hlo_iota(h, hlo_dtype(h, i), 3, dims, dim);
  return hlo_cmp(h, direction, place, i);
}

/* A's own triangle without what lies beyond it, as the other triangle may hold anything. */
static hlo_val_t triangle(hlo_t *h, hlo_val_t a, bool upper) {
  return upper ? linalg_upper(h, a, 0) : linalg_lower(h, a, 0);
}

/* A given result of [B] from a batch value, and of [..., m, n] from [B, m, n]. */
static void ret(hlo_t *h, const op_call_t *c, int k, hlo_val_t value) {
  if (!op_result_wanted(c, k)) return;
  const hlo_val_t shaped = part_as_result(h, c, k, value);
  op_ret(h, c, k, shaped);
}

static bool ret_if_empty(hlo_t *h, const op_call_t *c, int arg) {
  const int rank = op_arg_rank(c, arg);
  if (ttpu_dims_numel(rank, op_arg_dims(c, arg)) > 0) return false;
  for (int k = 0; k < op_result_count(c); k++) {
    if (!op_result_wanted(c, k)) continue;
    const hlo_val_t zeros = hlo_full(h, op_result_dtype(c, k), op_result_rank(c, k), op_result_dims(c, k), 0);
    op_ret(h, c, k, zeros);
  }
  return true;
}

/* --- triangular systems ------------------------------------------------------------------------------- */

static hlo_val_t solve_triangle(hlo_t *h, hlo_val_t a, hlo_val_t b, bool left, bool upper, bool unit, const char *op) {
  const hlo_val_t own = triangle(h, a, upper);
  return hlo_triangular_solve(h, own, b, left, !upper, unit, op);
}

EMIT(linalg_solve_triangular) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t a = linalg_arg(h, c, 0, 0), b = linalg_arg(h, c, 1, 0);
  const hlo_val_t x = solve_triangle(h, a, b, op_bool(c, 3, true), op_bool(c, 2, false), op_bool(c, 4, false),
                                     "NO_TRANSPOSE");
  ret(h, c, 0, x);
}

EMIT(triangular_solve) {
  const hlo_val_t coefficients = op_tensor(h, c, 1);
  const hlo_val_t copied = hlo_failed(h) ? 0 : hlo_expand(h, coefficients, op_result_rank(c, 1), op_result_dims(c, 1));
  op_ret(h, c, 1, copied);
  if (ttpu_dims_numel(op_result_rank(c, 0), op_result_dims(c, 0)) == 0) {
    const hlo_val_t none = hlo_full(h, op_result_dtype(c, 0), op_result_rank(c, 0), op_result_dims(c, 0), 0);
    op_ret(h, c, 0, none);
    return;
  }
  const hlo_val_t b = linalg_arg(h, c, 0, 0), a = linalg_arg(h, c, 1, 0);
  const hlo_val_t x = solve_triangle(h, a, b, true, op_bool(c, 2, true), op_bool(c, 4, false),
                                     op_bool(c, 3, false) ? "TRANSPOSE" : "NO_TRANSPOSE");
  ret(h, c, 0, x);
}

/* --- Cholesky ----------------------------------------------------------------------------------------- */

/* One column a trip, left-looking, over the lower triangle. |info| is the order of the first leading minor that is not
 * positive, as LAPACK counts it, else 0; columns from there on keep the values of A. */
enum { FACTOR, INFO, CHOLESKY_CARRIED };

static void cholesky_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t a = args[1 + FACTOR], info = args[1 + INFO];
  const ttpu_dtype_e t = hlo_dtype(h, a);
  const hlo_val_t i = hlo_convert(h, args[0], TTPU_I32);
  const hlo_val_t column = part_pick(h, a, 2, i);                       /* [B, n, 1] */
  const hlo_val_t pivot = part_pick(h, column, 1, i);                   /* [B, 1, 1] */
  const hlo_val_t value = ttpu_dtype_is_complex(t) ? hlo_real(h, pivot) : pivot;
  const hlo_val_t is_positive = map_cmp_k(h, "GT", value, 0);
  const hlo_val_t good_so_far = map_cmp_k(h, "EQ", info, 0);
  const hlo_val_t is_good = hlo_and(h, is_positive, good_so_far);
  const hlo_val_t is_bad_now = hlo_not(h, is_positive);
  const hlo_val_t fails = hlo_and(h, is_bad_now, good_so_far);
  const hlo_val_t one = hlo_const_int(h, TTPU_I32, 1);
  const hlo_val_t order = hlo_add(h, i, one);
  results[INFO] = hlo_select(h, fails, order, info);

  const hlo_val_t safe = map_else_k(h, is_positive, value, 1);
  const hlo_val_t root = hlo_sqrt(h, safe);
  const hlo_val_t divisor = hlo_convert(h, root, t);
  const hlo_val_t scaled = hlo_div(h, column, divisor);
  const hlo_val_t is_below = linalg_where(h, a, 1, "GT", i), is_row = linalg_where(h, a, 1, "EQ", i);
  const hlo_val_t below = map_else_k(h, is_below, scaled, 0);
  const hlo_val_t with_pivot = hlo_select(h, is_row, divisor, below);
  /* The trailing matrix loses column times its adjoint. */
  const hlo_val_t turned = linalg_adjoint(h, below);
  const hlo_val_t product = hlo_mul(h, below, turned);
  const hlo_val_t rest = hlo_sub(h, a, product);
  const hlo_val_t is_column = linalg_where(h, a, 2, "EQ", i);
  const hlo_val_t upper_row = hlo_or(h, is_row, is_below);
  const hlo_val_t written = hlo_and(h, is_column, upper_row);
  const hlo_val_t next = hlo_select(h, written, with_pivot, rest);
  results[FACTOR] = hlo_select(h, is_good, next, a);
}

/* |a| [B, n, n], of which the lower triangle counts. */
static hlo_val_t cholesky(hlo_t *h, hlo_val_t a, hlo_val_t *info) {
  if (hlo_failed(h)) return *info = 0;
  const int64_t batch = hlo_dim(h, a, 0), n = hlo_dim(h, a, 1), ones[] = {batch, 1, 1};
  const hlo_val_t own = linalg_lower(h, a, 0), none = hlo_full(h, TTPU_I32, 3, ones, 0);
  const hlo_val_t init[] = {own, none};
  hlo_val_t out[CHOLESKY_CARRIED] = {0};
  hlo_for(h, n, CHOLESKY_CARRIED, init, cholesky_step, NULL, out);
  *info = hlo_reshape(h, out[INFO], 1, &batch);
  return linalg_lower(h, out[FACTOR], 0);
}

EMIT(cholesky) {
  if (ret_if_empty(h, c, 0)) return;
  const hlo_val_t given = linalg_arg(h, c, 0, -1);
  const bool upper = op_bool(c, 1, false);
  const hlo_val_t a = upper ? linalg_adjoint(h, given) : given;
  hlo_val_t info;
  const hlo_val_t lower = cholesky(h, a, &info);
  const hlo_val_t factor = upper ? linalg_adjoint(h, lower) : lower;
  ret(h, c, 0, factor);
  if (op_result_count(c) > 1) ret(h, c, 1, info);
}

/* (L L^H) X = B, or (U^H U) X = B. */
static hlo_val_t cholesky_solve(hlo_t *h, hlo_val_t factor, hlo_val_t b, bool upper) {
  const hlo_val_t half = solve_triangle(h, factor, b, true, upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
  return solve_triangle(h, factor, half, true, upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT");
}

EMIT(cholesky_solve) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t b = linalg_arg(h, c, 0, 0), factor = linalg_arg(h, c, 1, 0);
  const hlo_val_t x = cholesky_solve(h, factor, b, op_bool(c, 2, false));
  ret(h, c, 0, x);
}

EMIT(cholesky_inverse) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t factor = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, factor, 1);
  const hlo_val_t identity = linalg_identity(h, hlo_dtype(h, factor), hlo_dim(h, factor, 0), n, n);
  const hlo_val_t inverse = cholesky_solve(h, factor, identity, op_bool(c, 1, false));
  ret(h, c, 0, inverse);
}

/* --- LU ----------------------------------------------------------------------------------------------- */

/* Right-looking elimination, one column a trip: the row of the largest magnitude is swapped up, the rows below lose their
 * multiple of it. LAPACK's getrf: pivots count from 1, |info| is the first column without a pivot, counted from 1. */
enum { MATRIX, PIVOTS, LU_INFO, LU_CARRIED };

typedef struct {
  bool pivot;
} lu_t;

/* Row of the largest magnitude in column |i| from row |i| on: i32 [B, 1, 1]. LAPACK measures |re| + |im|. */
static hlo_val_t pivot_row(hlo_t *h, hlo_val_t column, hlo_val_t i) {
  hlo_val_t size;
  if (ttpu_dtype_is_complex(hlo_dtype(h, column))) {
    const hlo_val_t re = hlo_real(h, column), im = hlo_imag(h, column);
    const hlo_val_t re_size = hlo_abs(h, re), im_size = hlo_abs(h, im);
    size = hlo_add(h, re_size, im_size);
  } else {
    size = hlo_abs(h, column);
  }
  const hlo_val_t is_open = linalg_where(h, column, 1, "GE", i);
  const hlo_val_t open = map_else_k(h, is_open, size, -1);
  const hlo_val_t top = hlo_reduce_dim(h, "maximum", open, 1);
  const hlo_val_t most = hlo_unsqueeze(h, top, 1);
  const hlo_val_t is_most = hlo_eq(h, open, most);
  const hlo_val_t place = hlo_iota_like(h, TTPU_I32, column, 1), extent = hlo_const_int(h, TTPU_I32, hlo_dim(h, column, 1));
  const hlo_val_t candidates = hlo_select(h, is_most, place, extent);
  const hlo_val_t least = hlo_reduce_dim(h, "minimum", candidates, 1);
  const hlo_val_t first = hlo_unsqueeze(h, least, 1);
  const hlo_val_t exists = hlo_lt(h, first, extent); /* NaN is no candidate */
  return hlo_select(h, exists, first, i);
}

static void lu_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const lu_t *lu = ctx;
  const hlo_val_t a = args[1 + MATRIX], pivots = args[1 + PIVOTS], info = args[1 + LU_INFO];
  if (hlo_failed(h)) return;
  const int64_t batch = hlo_dim(h, a, 0), n = hlo_dim(h, a, 2);
  const hlo_val_t i = hlo_convert(h, args[0], TTPU_I32), one = hlo_const_int(h, TTPU_I32, 1);
  const int64_t single[] = {batch, 1, 1}, whole_row[] = {batch, 1, n}, pair[] = {batch, 1};
  const hlo_val_t column = part_pick(h, a, 2, i);
  const hlo_val_t p = lu->pivot ? pivot_row(h, column, i) : hlo_expand(h, i, 3, single);
  const hlo_val_t row_i = part_pick(h, a, 1, i), p_row = hlo_expand(h, p, 3, whole_row);
  const hlo_val_t row_p = hlo_take_along(h, a, p_row, 1);
  const hlo_val_t is_p = linalg_where(h, a, 1, "EQ", p), is_i = linalg_where(h, a, 1, "EQ", i);
  const hlo_val_t half_swapped = hlo_select(h, is_p, row_i, a);
  const hlo_val_t swapped = hlo_select(h, is_i, row_p, half_swapped);

  const hlo_val_t pivot = part_pick(h, row_p, 2, i);
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", pivot, 0);
  const hlo_val_t safe = map_then_k(h, is_zero, 1, pivot);
  const hlo_val_t raw_factors = part_pick(h, swapped, 2, i);
  const hlo_val_t factors = hlo_div(h, raw_factors, safe);
  const hlo_val_t is_below = linalg_where(h, a, 1, "GT", i), is_right = linalg_where(h, a, 2, "GT", i);
  const hlo_val_t is_column = linalg_where(h, a, 2, "EQ", i);
  const hlo_val_t product = hlo_mul(h, factors, row_p);
  const hlo_val_t reduced = hlo_sub(h, swapped, product);
  const hlo_val_t is_rest = hlo_and(h, is_below, is_right), is_factor = hlo_and(h, is_below, is_column);
  const hlo_val_t with_rest = hlo_select(h, is_rest, reduced, swapped);
  results[MATRIX] = hlo_select(h, is_factor, factors, with_rest);

  const hlo_val_t counted = hlo_add(h, p, one);
  const hlo_val_t entry = hlo_reshape(h, counted, 2, pair);
  const hlo_val_t zero = hlo_const_int(h, TTPU_I32, 0);
  const hlo_val_t starts[] = {zero, i};
  results[PIVOTS] = hlo_dynamic_update_slice(h, pivots, entry, starts);
  const hlo_val_t good_so_far = map_cmp_k(h, "EQ", info, 0);
  const hlo_val_t fails = hlo_and(h, is_zero, good_so_far);
  const hlo_val_t order = hlo_add(h, i, one);
  results[LU_INFO] = hlo_select(h, fails, order, info);
}

typedef struct {
  hlo_val_t packed, pivots, info; /* [B, m, n], [B, min(m, n)], [B] */
} factors_t;

static factors_t lu_factor(hlo_t *h, hlo_val_t a, bool pivot) {
  factors_t f = {0};
  if (hlo_failed(h)) return f;
  const int64_t batch = hlo_dim(h, a, 0), m = hlo_dim(h, a, 1), n = hlo_dim(h, a, 2), k = m < n ? m : n;
  const int64_t places[] = {batch, k}, ones[] = {batch, 1, 1};
  const hlo_val_t pivots = hlo_full(h, TTPU_I32, 2, places, 0), none = hlo_full(h, TTPU_I32, 3, ones, 0);
  const hlo_val_t init[] = {a, pivots, none};
  hlo_val_t out[LU_CARRIED] = {0};
  lu_t lu = {.pivot = pivot};
  hlo_for(h, k, LU_CARRIED, init, lu_step, &lu, out);
  f.packed = out[MATRIX];
  f.pivots = out[PIVOTS];
  f.info = hlo_reshape(h, out[LU_INFO], 1, &batch);
  return f;
}

/* The row order that the swaps make, i32 [B, m]: swapped x = x[order]; |reversed| undoes the swaps instead. */
typedef struct {
  int64_t count;
  bool reversed;
} swaps_t;

static void swap_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const swaps_t *s = ctx;
  const hlo_val_t order = args[1], pivots = args[2];
  const hlo_val_t trip = hlo_convert(h, args[0], TTPU_I32), last = hlo_const_int(h, TTPU_I32, s->count - 1);
  const hlo_val_t i = s->reversed ? hlo_sub(h, last, trip) : trip;
  const hlo_val_t one = hlo_const_int(h, TTPU_I32, 1);
  const hlo_val_t counted = part_pick(h, pivots, 1, i);
  const hlo_val_t p = hlo_sub(h, counted, one);
  const hlo_val_t at_i = part_pick(h, order, 1, i), at_p = hlo_take_along(h, order, p, 1);
  const hlo_val_t place = hlo_iota_like(h, TTPU_I32, order, 1);
  const hlo_val_t is_p = hlo_eq(h, place, p), is_i = hlo_eq(h, place, i);
  const hlo_val_t half = hlo_select(h, is_p, at_i, order);
  results[0] = hlo_select(h, is_i, at_p, half);
  results[1] = pivots;
}

static hlo_val_t row_order(hlo_t *h, hlo_val_t pivots, int64_t m, bool reversed) {
  if (hlo_failed(h)) return 0;
  const int64_t dims[] = {hlo_dim(h, pivots, 0), m};
  swaps_t s = {.count = hlo_dim(h, pivots, 1), .reversed = reversed};
  const hlo_val_t start = hlo_iota(h, TTPU_I32, 2, dims, 1);
  if (s.count == 0) return start;
  const hlo_val_t init[] = {start, pivots};
  hlo_val_t out[2] = {0};
  hlo_for(h, s.count, 2, init, swap_step, &s, out);
  return out[0];
}

/* Rows of |x| [B, m, n] in |order| [B, m]. */
static hlo_val_t reorder(hlo_t *h, hlo_val_t x, hlo_val_t order) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t column = hlo_unsqueeze(h, order, 2);
  const hlo_val_t whole = hlo_expand(h, column, 3, hlo_dims(h, x));
  return hlo_take_along(h, x, whole, 1);
}

/* A = P L U: the matrix P [B, m, m] of the swaps. */
static hlo_val_t permutation(hlo_t *h, hlo_val_t pivots, int64_t m, ttpu_dtype_e t) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t order = row_order(h, pivots, m, false);
  const int64_t dims[] = {hlo_dim(h, pivots, 0), m, m};
  const hlo_val_t row = hlo_iota(h, TTPU_I32, 3, dims, 1), from = hlo_unsqueeze(h, order, 1);
  const hlo_val_t equal = hlo_eq(h, row, from);
  return hlo_convert(h, equal, t);
}

/* A X = B, or A^H X = B with |adjoint|, from A = P L U. */
static hlo_val_t lu_solve_left(hlo_t *h, hlo_val_t packed, hlo_val_t pivots, hlo_val_t b, bool adjoint) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t order = row_order(h, pivots, hlo_dim(h, packed, 1), adjoint);
  if (!adjoint) {
    const hlo_val_t rows = reorder(h, b, order);
    const hlo_val_t half = solve_triangle(h, packed, rows, true, false, true, "NO_TRANSPOSE");
    return solve_triangle(h, packed, half, true, true, false, "NO_TRANSPOSE");
  }
  const hlo_val_t half = solve_triangle(h, packed, b, true, true, false, "ADJOINT");
  const hlo_val_t rows = solve_triangle(h, packed, half, true, false, true, "ADJOINT");
  return reorder(h, rows, order);
}

/* X A = B is A^H X^H = B^H. */
static hlo_val_t lu_solve(hlo_t *h, hlo_val_t packed, hlo_val_t pivots, hlo_val_t b, bool left, bool adjoint) {
  if (left) return lu_solve_left(h, packed, pivots, b, adjoint);
  const hlo_val_t turned = linalg_adjoint(h, b);
  const hlo_val_t x = lu_solve_left(h, packed, pivots, turned, !adjoint);
  return linalg_adjoint(h, x);
}

static void ret_factors(hlo_t *h, const op_call_t *c, int first, const factors_t *f, bool with_info) {
  ret(h, c, first, f->packed);
  ret(h, c, first + 1, f->pivots);
  if (with_info) ret(h, c, first + 2, f->info);
}

EMIT(linalg_lu_factor_ex) {
  if (ret_if_empty(h, c, 0)) return;
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  const factors_t f = lu_factor(h, a, op_bool(c, 1, true));
  ret_factors(h, c, 0, &f, true);
}

/* L [B, m, k] with ones on its diagonal and U [B, k, n], k = min(m, n). */
static void unpack(hlo_t *h, hlo_val_t packed, hlo_val_t *l, hlo_val_t *u) {
  if (hlo_failed(h)) return;
  const int64_t m = hlo_dim(h, packed, 1), n = hlo_dim(h, packed, 2), k = m < n ? m : n;
  const hlo_val_t left = hlo_slice_dim(h, packed, 2, 0, k, 1), top = hlo_slice_dim(h, packed, 1, 0, k, 1);
  const hlo_val_t below = linalg_lower(h, left, -1);
  const hlo_val_t ones = linalg_identity(h, hlo_dtype(h, packed), hlo_dim(h, packed, 0), m, k);
  *l = hlo_add(h, below, ones);
  *u = linalg_upper(h, top, 0);
}

EMIT(linalg_lu) {
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const bool pivot = op_bool(c, 1, true);
  const factors_t f = lu_factor(h, a, pivot);
  hlo_val_t l = 0, u = 0;
  unpack(h, f.packed, &l, &u);
  if (pivot) {
    const hlo_val_t p = permutation(h, f.pivots, hlo_dim(h, a, 1), hlo_dtype(h, a));
    ret(h, c, 0, p);
  } else if (op_result_wanted(c, 0)) {
    const hlo_val_t none = hlo_full(h, op_result_dtype(c, 0), op_result_rank(c, 0), op_result_dims(c, 0), 0);
    op_ret(h, c, 0, none);
  }
  ret(h, c, 1, l);
  ret(h, c, 2, u);
}

EMIT(lu_unpack) {
  const hlo_val_t packed = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const bool with_data = op_bool(c, 2, true), with_pivots = op_bool(c, 3, true);
  const int64_t nothing = 0;
  hlo_val_t l = 0, u = 0, p = 0;
  if (with_data) unpack(h, packed, &l, &u);
  if (with_pivots) {
    const hlo_val_t raw = op_tensor_as(h, c, 1, TTPU_I32);
    const hlo_val_t pivots = part_batched(h, raw, 1);
    p = permutation(h, pivots, hlo_dim(h, packed, 1), op_result_dtype(c, 0));
  }
  const hlo_val_t parts[] = {p, l, u};
  for (int k = 0; k < 3; k++) {
    if (parts[k]) {
      ret(h, c, k, parts[k]);
    } else if (op_result_wanted(c, k)) {
      const hlo_val_t none = hlo_full(h, op_result_dtype(c, k), 1, &nothing, 0);
      op_ret(h, c, k, none);
    }
  }
}

EMIT(linalg_lu_solve) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t packed = linalg_arg(h, c, 0, 0), b = linalg_arg(h, c, 2, 0), raw = op_tensor_as(h, c, 1, TTPU_I32);
  if (hlo_failed(h)) return;
  int64_t dims[TTPU_MAX_RANK];
  const int outer = op_result_rank(c, 0) - 2;
  for (int i = 0; i < outer; i++) dims[i] = op_result_dims(c, 0)[i];
  dims[outer] = hlo_dim(h, raw, -1);
  const hlo_val_t spread = hlo_expand(h, raw, outer + 1, dims);
  const hlo_val_t pivots = part_batched(h, spread, 1);
  const hlo_val_t x = lu_solve(h, packed, pivots, b, op_bool(c, 3, true), op_bool(c, 4, false));
  ret(h, c, 0, x);
}

EMIT(linalg_solve) {
  const bool left = op_bool(c, 2, true);
  if (ret_if_empty(h, c, 0)) return;
  const hlo_val_t a = linalg_arg(h, c, 0, -1), raw = op_tensor(h, c, 1);
  if (hlo_failed(h)) return;
  const factors_t f = lu_factor(h, a, true);
  /* B is a batch of vectors when it is one vector, or has A's dims but the last (PyTorch's rule). */
  const int a_rank = op_arg_rank(c, 0), b_rank = hlo_rank(h, raw);
  const int64_t *a_dims = op_arg_dims(c, 0), *b_dims = op_arg_dims(c, 1);
  bool is_vector = b_rank == 1 || b_rank == a_rank - 1;
  for (int i = 0; is_vector && b_rank > 1 && i < b_rank; i++) is_vector = a_dims[i] == b_dims[i];
  const hlo_val_t matrix = is_vector ? hlo_unsqueeze(h, raw, b_rank) : raw;
  /* Factors and right-hand sides over the result's batch. */
  const int outer = op_result_rank(c, 0) - (is_vector ? 1 : 2);
  int64_t dims[TTPU_MAX_RANK];
  for (int i = 0; i < outer; i++) dims[i] = op_result_dims(c, 0)[i];
  dims[outer] = hlo_dim(h, matrix, -2), dims[outer + 1] = hlo_dim(h, matrix, -1);
  if (ttpu_dims_numel(outer + 2, dims) > 0) {
    const hlo_val_t spread = hlo_expand(h, matrix, outer + 2, dims);
    const hlo_val_t b = part_batched(h, spread, 2);
    const int64_t n = a_dims[a_rank - 1];
    hlo_val_t packed = hlo_reshape(h, f.packed, a_rank, a_dims), pivots = hlo_reshape(h, f.pivots, a_rank - 1, a_dims);
    dims[outer] = n, dims[outer + 1] = n;
    packed = hlo_expand(h, packed, outer + 2, dims);
    packed = part_batched(h, packed, 2);
    pivots = hlo_expand(h, pivots, outer + 1, dims);
    pivots = part_batched(h, pivots, 1);
    const hlo_val_t x = lu_solve(h, packed, pivots, b, left, false);
    ret(h, c, 0, x);
  } else {
    const hlo_val_t none = hlo_full(h, op_result_dtype(c, 0), op_result_rank(c, 0), op_result_dims(c, 0), 0);
    op_ret(h, c, 0, none);
  }
  ret_factors(h, c, 1, &f, true);
}

EMIT(linalg_inv) {
  if (ret_if_empty(h, c, 0)) return;
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const factors_t f = lu_factor(h, a, true);
  const int64_t n = hlo_dim(h, a, 1);
  const hlo_val_t identity = linalg_identity(h, hlo_dtype(h, a), hlo_dim(h, a, 0), n, n);
  const hlo_val_t inverse = lu_solve_left(h, f.packed, f.pivots, identity, false);
  ret(h, c, 0, inverse);
  ret(h, c, 1, f.info);
}

/* For a determinant PyTorch factors A^T in place of a contiguous real A (no copy into column order), and its backward
 * formulas count on that: they solve with these factors, adjoint or not by the same rule. A row with OP_LAYOUT is told the
 * layout behind its schema's one argument. */
static factors_t det_factors(hlo_t *h, const op_call_t *c, hlo_val_t a) {
  const bool is_contiguous = op_int(c, 1, 1) & 1;
  const bool transposes = is_contiguous && !hlo_failed(h) && !ttpu_dtype_is_complex(hlo_dtype(h, a));
  const hlo_val_t given = transposes ? hlo_swap(h, a, 1, 2) : a;
  return lu_factor(h, given, true);
}

/* -1 for an odd number of swaps, else 1: [B] of |t|. */
static hlo_val_t swap_sign(hlo_t *h, hlo_val_t pivots, ttpu_dtype_e t) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t place = hlo_iota_like(h, TTPU_I32, pivots, 1), one = hlo_const_int(h, TTPU_I32, 1);
  const hlo_val_t own = hlo_add(h, place, one);
  const hlo_val_t swaps = hlo_ne(h, pivots, own);
  const hlo_val_t ones = hlo_convert(h, swaps, TTPU_I32);
  const hlo_val_t count = hlo_reduce_dim(h, "add", ones, 1);
  const hlo_val_t odd = hlo_and(h, count, one);
  const hlo_val_t twice = hlo_add(h, odd, odd);
  const hlo_val_t sign = hlo_sub(h, one, twice);
  return hlo_convert(h, sign, t);
}

static void ret_all(hlo_t *h, const op_call_t *c, int k, double value) {
  const hlo_val_t same = hlo_full(h, op_result_dtype(c, k), op_result_rank(c, k), op_result_dims(c, k), value);
  op_ret(h, c, k, same);
}

EMIT(linalg_det) {
  if (ttpu_dims_numel(op_arg_rank(c, 0), op_arg_dims(c, 0)) == 0) {
    ret_all(h, c, 0, 1);
    ret_all(h, c, 1, 0);
    ret_all(h, c, 2, 0);
    return;
  }
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const factors_t f = det_factors(h, c, a);
  const hlo_val_t diagonal = linalg_diagonal(h, f.packed);
  const hlo_val_t product = hlo_reduce_dim(h, "multiply", diagonal, 1), sign = swap_sign(h, f.pivots, hlo_dtype(h, a));
  const hlo_val_t det = hlo_mul(h, product, sign);
  ret(h, c, 0, det);
  ret_factors(h, c, 1, &f, false);
}

EMIT(linalg_slogdet) {
  if (ttpu_dims_numel(op_arg_rank(c, 0), op_arg_dims(c, 0)) == 0) {
    ret_all(h, c, 0, 1);
    for (int k = 1; k < 4; k++) ret_all(h, c, k, 0);
    return;
  }
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = hlo_dtype(h, a);
  const factors_t f = det_factors(h, c, a);
  const hlo_val_t diagonal = linalg_diagonal(h, f.packed);
  const hlo_val_t size = hlo_abs(h, diagonal);
  hlo_val_t direction;
  if (ttpu_dtype_is_complex(t)) {
    const hlo_val_t is_zero = map_cmp_k(h, "EQ", size, 0);
    const hlo_val_t safe = map_then_k(h, is_zero, 1, size);
    const hlo_val_t divisor = hlo_convert(h, safe, t);
    direction = hlo_div(h, diagonal, divisor);
  } else {
    direction = hlo_sign(h, diagonal);
  }
  const hlo_val_t product = hlo_reduce_dim(h, "multiply", direction, 1), swapped = swap_sign(h, f.pivots, t);
  const hlo_val_t sign = hlo_mul(h, product, swapped);
  const hlo_val_t log = hlo_log(h, size);
  const hlo_val_t sum = hlo_reduce_dim(h, "add", log, 1);
  ret(h, c, 0, sign);
  ret(h, c, 1, sum);
  ret_factors(h, c, 2, &f, false);
}

/* --- the matrix exponential --------------------------------------------------------------------------- */

/* Scaling and squaring: e^A = (e^(A / 2^s))^(2^s) with s such that the Taylor polynomial of degree 18 is exact to rounding
 * at the 1-norm of A / 2^s: below 3 in f32 and below 1 in f64. Squaring doubles rounding errors, so no more of it than
 * needed. The polynomial is summed by powers of A^3: five products and two. */
enum { TAYLOR_DEGREE = 18, TAYLOR_BLOCK = 3 };
enum { POWER, LEFT, SQUARE_CARRIED };

static void square_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t open = map_cmp_k(h, "GT", args[LEFT], 0);
  results[0] = hlo_reduce_all(h, "or", open);
}

static void square_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t open = map_cmp_k(h, "GT", args[LEFT], 0);
  const hlo_val_t squared = linalg_matmul(h, args[POWER], args[POWER]);
  results[POWER] = hlo_select(h, open, squared, args[POWER]);
  results[LEFT] = map_add_k(h, args[LEFT], -1);
}

static hlo_val_t taylor(hlo_t *h, hlo_val_t a) {
  const ttpu_dtype_e t = hlo_dtype(h, a);
  const int64_t n = hlo_dim(h, a, 1);
  hlo_val_t powers[TAYLOR_BLOCK + 1];
  powers[0] = linalg_identity(h, t, hlo_dim(h, a, 0), n, n);
  powers[1] = a;
  for (int i = 2; i <= TAYLOR_BLOCK; i++) powers[i] = linalg_matmul(h, powers[i - 1], a);
  double factorial[TAYLOR_DEGREE + 1] = {1};
  for (int i = 1; i <= TAYLOR_DEGREE; i++) factorial[i] = factorial[i - 1] * i;
  hlo_val_t sum = map_mul_k(h, powers[0], 1 / factorial[TAYLOR_DEGREE]);
  for (int at = TAYLOR_DEGREE - TAYLOR_BLOCK; at >= 0; at -= TAYLOR_BLOCK) {
    sum = linalg_matmul(h, sum, powers[TAYLOR_BLOCK]);
    for (int i = 0; i < TAYLOR_BLOCK; i++) {
      const hlo_val_t term = map_mul_k(h, powers[i], 1 / factorial[at + i]);
      sum = hlo_add(h, sum, term);
    }
  }
  return sum;
}

EMIT(linalg_matrix_exp) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = map_wide(hlo_dtype(h, raw));
  const hlo_val_t a = hlo_convert(h, raw, t);
  const hlo_val_t size = hlo_abs(h, a);
  const hlo_val_t sums = hlo_reduce_dim(h, "add", size, 1);
  const hlo_val_t norm = hlo_reduce_dim(h, "maximum", sums, 1);
  const hlo_val_t relative = map_mul_k(h, norm, ttpu_dtype_real(t) == TTPU_F64 ? 1 : 1.0 / 3);
  const hlo_val_t not_less = map_max_k(h, relative, 1);
  const hlo_val_t log = hlo_log(h, not_less);
  const hlo_val_t halvings = map_mul_k(h, log, 1 / M_LN2);
  const hlo_val_t up = hlo_ceil(h, halvings);
  const hlo_val_t bounded = map_min_k(h, up, 62);
  const int64_t single[] = {hlo_dim(h, a, 0), 1, 1};
  const hlo_val_t s = hlo_reshape(h, bounded, 3, single);
  const hlo_val_t shift = hlo_convert(h, s, TTPU_I64), one = hlo_const_int(h, TTPU_I64, 1);
  const hlo_val_t power = hlo_shl(h, one, shift);
  const hlo_val_t whole = hlo_convert(h, power, ttpu_dtype_real(t));
  const hlo_val_t factor = map_k_div(h, 1, whole);
  const hlo_val_t scale = hlo_convert(h, factor, t);
  const hlo_val_t small = hlo_mul(h, a, scale);
  const hlo_val_t start = taylor(h, small);
  const hlo_val_t init[] = {start, s};
  hlo_val_t out[SQUARE_CARRIED] = {0};
  hlo_while(h, SQUARE_CARRIED, init, square_goes_on, square_step, NULL, out);
  ret(h, c, 0, out[POWER]);
}
