/* eigen.c: Jacobi's methods. Eigenvalues of Hermitian matrices by two-sided rotations, singular values by one-sided ones.
 *
 * One round rotates n/2 disjoint pairs of rows at once, pair i being rows i and i + n/2; then the rows move round as in a
 * tournament, so that n - 1 rounds (a sweep) meet every pair and end in the first order. n is made even by a zero row,
 * which no rotation touches. Convergence is quadratic: 6 to 10 sweeps in practice.
 */
#include <math.h>
#include <string.h>

#include "ops/linalg.h"

enum { SWEEPS_MOST = 24 };

static double epsilon(ttpu_dtype_e t) { return ttpu_dtype_real(t) == TTPU_F64 ? ldexp(1, -52) : ldexp(1, -23); }

/* --- one round ---------------------------------------------------------------------------------------- */

/* Of each pair: cosine (real, as element type) and sine times phase, with its conjugate; [B, n/2]. */
typedef struct {
  hlo_val_t cosine, sine, sine_conj;
} turn_t;

/* The rotation that makes z vanish in [[a, z], [conj z, b]]. */
static turn_t turn_for(hlo_t *h, hlo_val_t a, hlo_val_t b, hlo_val_t z) {
  turn_t r = {0};
  if (hlo_failed(h)) return r;
  const ttpu_dtype_e t = hlo_dtype(h, z);
  const hlo_val_t size = hlo_abs(h, z);
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", size, 0);
  const hlo_val_t safe = map_then_k(h, is_zero, 1, size);
  const hlo_val_t gap = hlo_sub(h, b, a);
  const hlo_val_t twice = hlo_add(h, safe, safe);
  const hlo_val_t cotangent = hlo_div(h, gap, twice); /* of the double angle */
  const hlo_val_t square = hlo_mul(h, cotangent, cotangent);
  const hlo_val_t more = map_add_k(h, square, 1);
  const hlo_val_t root = hlo_sqrt(h, more);
  const hlo_val_t magnitude = hlo_abs(h, cotangent);
  const hlo_val_t denominator = hlo_add(h, magnitude, root);
  const hlo_val_t steep = map_k_div(h, 1, denominator);
  const hlo_val_t is_negative = map_cmp_k(h, "LT", cotangent, 0);
  const hlo_val_t opposite = hlo_neg(h, steep);
  const hlo_val_t signed_tangent = hlo_select(h, is_negative, opposite, steep);
  const hlo_val_t tangent = map_then_k(h, is_zero, 0, signed_tangent);
  const hlo_val_t tangent2 = hlo_mul(h, tangent, tangent);
  const hlo_val_t secant2 = map_add_k(h, tangent2, 1);
  const hlo_val_t secant = hlo_sqrt(h, secant2);
  const hlo_val_t cosine = map_k_div(h, 1, secant);
  const hlo_val_t sine = hlo_div(h, tangent, secant);
  const hlo_val_t wide_size = hlo_convert(h, safe, t), wide_sine = hlo_convert(h, sine, t);
  const hlo_val_t phase = hlo_div(h, z, wide_size);
  r.cosine = hlo_convert(h, cosine, t);
  r.sine = hlo_mul(h, wide_sine, phase);
  r.sine_conj = linalg_conj(h, r.sine);
  return r;
}

/* Rows p, q of dimension |dim| become cosine p - minus q and plus p + cosine q, then move on by one place. */
static hlo_val_t rotate(hlo_t *h, hlo_val_t x, int dim, hlo_val_t cosine, hlo_val_t minus, hlo_val_t plus) {
  if (hlo_failed(h)) return 0;
  const int64_t n = hlo_dim(h, x, dim), half = n / 2;
  const int across = dim == 1 ? 2 : 1;
  const hlo_val_t c = hlo_unsqueeze(h, cosine, across), m = hlo_unsqueeze(h, minus, across);
  const hlo_val_t s = hlo_unsqueeze(h, plus, across);
  const hlo_val_t p = hlo_slice_dim(h, x, dim, 0, half, 1), q = hlo_slice_dim(h, x, dim, half, n, 1);
  const hlo_val_t cp = hlo_mul(h, c, p), mq = hlo_mul(h, m, q), sp = hlo_mul(h, s, p), cq = hlo_mul(h, c, q);
  const hlo_val_t top = hlo_sub(h, cp, mq), bottom = hlo_add(h, sp, cq);
  if (half == 1) {
    const hlo_val_t both[] = {top, bottom};
    return hlo_concat(h, 2, both, dim);
  }
  hlo_val_t parts[5];
  int count = 0;
  parts[count++] = hlo_slice_dim(h, top, dim, 0, 1, 1);
  parts[count++] = hlo_slice_dim(h, bottom, dim, 0, 1, 1);
  if (half > 2) parts[count++] = hlo_slice_dim(h, top, dim, 1, half - 1, 1);
  parts[count++] = hlo_slice_dim(h, bottom, dim, 1, half, 1);
  parts[count++] = hlo_slice_dim(h, top, dim, half - 1, half, 1);
  return hlo_concat(h, count, parts, dim);
}

/* Divides by the largest magnitude of each matrix, so that squares neither overflow nor vanish. */
static hlo_val_t scaled_down(hlo_t *h, hlo_val_t a, hlo_val_t *scale) {
  if (hlo_failed(h)) return *scale = 0;
  const int dims[] = {1, 2};
  const hlo_val_t size = hlo_abs(h, a);
  const hlo_val_t top = hlo_reduce(h, "maximum", size, 2, dims);
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", top, 0);
  *scale = map_then_k(h, is_zero, 1, top);
  const hlo_val_t row = hlo_unsqueeze(h, *scale, 1);
  const hlo_val_t single = hlo_unsqueeze(h, row, 2);
  const hlo_val_t divisor = hlo_convert(h, single, hlo_dtype(h, a));
  return hlo_div(h, a, divisor);
}

static hlo_val_t even_rows(hlo_t *h, hlo_val_t x, int dim) {
  return hlo_failed(h) || hlo_dim(h, x, dim) % 2 == 0 ? x : hlo_pad_dim(h, x, 0, dim, 0, 1);
}

/* Rows of |x| [B, n, m] in |order| [B, n]. */
static hlo_val_t reorder(hlo_t *h, hlo_val_t x, hlo_val_t order) {
  if (hlo_failed(h)) return 0;
  const hlo_val_t column = hlo_unsqueeze(h, order, 2);
  const hlo_val_t whole = hlo_expand(h, column, 3, hlo_dims(h, x));
  return hlo_take_along(h, x, whole, 1);
}

/* --- Hermitian eigenvalues ---------------------------------------------------------------------------- */

/* Carried: the matrix, the eigenvectors as rows (transposed, not conjugated), the sweep. */
enum { EIGH_MATRIX, EIGH_VECTORS, EIGH_SWEEP, EIGH_CARRIED };

static void eigh_round(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t a = args[1 + EIGH_MATRIX], v = args[1 + EIGH_VECTORS];
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, a, 1), half = n / 2;
  const hlo_val_t all = linalg_diagonal(h, a);
  const hlo_val_t diagonal = ttpu_dtype_is_complex(hlo_dtype(h, a)) ? hlo_real(h, all) : all;
  const hlo_val_t top = hlo_slice_dim(h, diagonal, 1, 0, half, 1), bottom = hlo_slice_dim(h, diagonal, 1, half, n, 1);
  const hlo_val_t rows = hlo_slice_dim(h, a, 1, 0, half, 1);
  const hlo_val_t corner = hlo_slice_dim(h, rows, 2, half, n, 1);
  const hlo_val_t z = linalg_diagonal(h, corner);
  const turn_t r = turn_for(h, top, bottom, z);
  const hlo_val_t half_done = rotate(h, a, 1, r.cosine, r.sine, r.sine_conj);
  results[EIGH_MATRIX] = rotate(h, half_done, 2, r.cosine, r.sine_conj, r.sine);
  results[EIGH_VECTORS] = rotate(h, v, 1, r.cosine, r.sine_conj, r.sine);
  results[EIGH_SWEEP] = args[1 + EIGH_SWEEP];
}

static void eigh_sweep(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  if (hlo_failed(h)) return;
  hlo_for(h, hlo_dim(h, args[EIGH_MATRIX], 1) - 1, EIGH_CARRIED, args, eigh_round, ctx, results);
  results[EIGH_SWEEP] = map_add_k(h, results[EIGH_SWEEP], 1);
}

/* Until what is off the diagonal is below rounding of the whole, in every matrix. */
static void eigh_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t a = args[EIGH_MATRIX];
  if (hlo_failed(h)) return;
  const int dims[] = {1, 2};
  const hlo_val_t squares = linalg_square(h, a);
  const hlo_val_t row = hlo_iota_like(h, TTPU_I32, a, 1), column = hlo_iota_like(h, TTPU_I32, a, 2);
  const hlo_val_t is_off = hlo_ne(h, row, column);
  const hlo_val_t off_squares = map_else_k(h, is_off, squares, 0);
  const hlo_val_t off = hlo_reduce(h, "add", off_squares, 2, dims), total = hlo_reduce(h, "add", squares, 2, dims);
  const double e = epsilon(hlo_dtype(h, a));
  const hlo_val_t bound = map_mul_k(h, total, e * e);
  const hlo_val_t is_open = hlo_gt(h, off, bound);
  const hlo_val_t any_open = hlo_reduce_all(h, "or", is_open);
  const hlo_val_t in_time = map_cmp_k(h, "LT", args[EIGH_SWEEP], SWEEPS_MOST);
  results[0] = hlo_and(h, any_open, in_time);
}

EMIT(linalg_eigh) {
  const hlo_val_t given = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  if (hlo_numel(h, given) == 0) {
    for (int k = 0; k < op_result_count(c); k++) {
      if (!op_result_wanted(c, k)) continue;
      const hlo_val_t none = hlo_full(h, op_result_dtype(c, k), op_result_rank(c, k), op_result_dims(c, k), 0);
      op_ret(h, c, k, none);
    }
    return;
  }
  const char *side = op_string(c, 1);
  const bool with_vectors = op_bool(c, 2, true), upper = side[0] == 'U' || side[0] == 'u';
  const ttpu_dtype_e t = hlo_dtype(h, given);
  const int64_t batch = hlo_dim(h, given, 0), n = hlo_dim(h, given, 1);
  /* Only one triangle counts, and the real part of the diagonal. */
  const hlo_val_t lower_of = upper ? linalg_adjoint(h, given) : given;
  const hlo_val_t below = linalg_lower(h, lower_of, -1);
  const hlo_val_t above = linalg_adjoint(h, below);
  const hlo_val_t off = hlo_add(h, below, above);
  const hlo_val_t all = linalg_diagonal(h, given);
  const hlo_val_t real = ttpu_dtype_is_complex(t) ? hlo_real(h, all) : all;
  const hlo_val_t wide = hlo_convert(h, real, t);
  const hlo_val_t diagonal = hlo_unsqueeze(h, wide, 2);
  const hlo_val_t identity = linalg_identity(h, t, batch, n, n);
  const hlo_val_t on = hlo_mul(h, identity, diagonal);
  const hlo_val_t a = hlo_add(h, off, on);

  hlo_val_t scale;
  const hlo_val_t small = scaled_down(h, a, &scale);
  const hlo_val_t more_rows = even_rows(h, small, 1);
  const hlo_val_t even = even_rows(h, more_rows, 2);
  const hlo_val_t vectors = even_rows(h, identity, 1), sweep = hlo_const_int(h, TTPU_I32, 0);
  const hlo_val_t init[] = {even, vectors, sweep};
  hlo_val_t out[EIGH_CARRIED] = {even, vectors, sweep};
  if (n > 1) hlo_while(h, EIGH_CARRIED, init, eigh_goes_on, eigh_sweep, NULL, out);

  const hlo_val_t ends = linalg_diagonal(h, out[EIGH_MATRIX]);
  const hlo_val_t own = hlo_slice_dim(h, ends, 1, 0, n, 1);
  const hlo_val_t own_real = ttpu_dtype_is_complex(t) ? hlo_real(h, own) : own;
  const hlo_val_t factor = hlo_unsqueeze(h, scale, 1);
  const hlo_val_t values = hlo_mul(h, own_real, factor);
  hlo_val_t sorted, order;
  part_sort(h, values, 1, false, &sorted, &order);
  const hlo_val_t shaped = part_as_result(h, c, 0, sorted);
  op_ret(h, c, 0, shaped);
  if (!op_result_wanted(c, 1)) return;
  if (!with_vectors) {
    const hlo_val_t none = hlo_full(h, op_result_dtype(c, 1), op_result_rank(c, 1), op_result_dims(c, 1), 0);
    op_ret(h, c, 1, none);
    return;
  }
  const hlo_val_t rows = hlo_slice_dim(h, out[EIGH_VECTORS], 1, 0, n, 1);
  const hlo_val_t in_order = reorder(h, rows, order);
  const hlo_val_t columns = hlo_swap(h, in_order, 1, 2);
  const hlo_val_t result = part_as_result(h, c, 1, columns);
  op_ret(h, c, 1, result);
}

/* --- singular values ---------------------------------------------------------------------------------- */

/* Carried: the columns of A J and of the product of rotations J, both as rows; the largest cosine squared between two
 * columns seen in the sweep; the sweep. */
enum { SVD_COLUMNS, SVD_VECTORS, SVD_WORST, SVD_SWEEP, SVD_CARRIED };

static hlo_val_t row_norms(hlo_t *h, hlo_val_t x) {
  const hlo_val_t squares = linalg_square(h, x);
  return hlo_reduce_dim(h, "add", squares, 2);
}

static void svd_round(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t x = args[1 + SVD_COLUMNS], v = args[1 + SVD_VECTORS];
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, x, 1), half = n / 2;
  const hlo_val_t norms = row_norms(h, x);
  const hlo_val_t a = hlo_slice_dim(h, norms, 1, 0, half, 1), b = hlo_slice_dim(h, norms, 1, half, n, 1);
  const hlo_val_t p = hlo_slice_dim(h, x, 1, 0, half, 1), q = hlo_slice_dim(h, x, 1, half, n, 1);
  const hlo_val_t p_conj = linalg_conj(h, p);
  const hlo_val_t products = hlo_mul(h, p_conj, q);
  const hlo_val_t z = hlo_reduce_dim(h, "add", products, 2);
  /* Columns that are rounding noise beside the whole count as orthogonal. */
  const hlo_val_t total = hlo_reduce_dim(h, "add", norms, 1);
  const hlo_val_t whole = hlo_unsqueeze(h, total, 1);
  const double e = epsilon(hlo_dtype(h, x));
  const hlo_val_t noise = map_mul_k(h, whole, e * e), least = hlo_min(h, a, b);
  const hlo_val_t counts = hlo_gt(h, least, noise);
  const hlo_val_t z2 = linalg_square(h, z), ab = hlo_mul(h, a, b);
  const hlo_val_t safe = map_else_k(h, counts, ab, 1);
  const hlo_val_t cosine2 = hlo_div(h, z2, safe);
  const hlo_val_t counted = map_else_k(h, counts, cosine2, 0);
  const hlo_val_t worst = hlo_reduce_all(h, "maximum", counted);
  const turn_t r = turn_for(h, a, b, z);
  results[SVD_COLUMNS] = rotate(h, x, 1, r.cosine, r.sine_conj, r.sine);
  results[SVD_VECTORS] = rotate(h, v, 1, r.cosine, r.sine_conj, r.sine);
  results[SVD_WORST] = hlo_max(h, args[1 + SVD_WORST], worst);
  results[SVD_SWEEP] = args[1 + SVD_SWEEP];
}

static void svd_sweep(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  if (hlo_failed(h)) return;
  hlo_val_t init[SVD_CARRIED];
  memcpy(init, args, sizeof init);
  init[SVD_WORST] = hlo_like(h, args[SVD_WORST], 0);
  hlo_for(h, hlo_dim(h, args[SVD_COLUMNS], 1) - 1, SVD_CARRIED, init, svd_round, ctx, results);
  results[SVD_SWEEP] = map_add_k(h, results[SVD_SWEEP], 1);
}

static void svd_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  if (hlo_failed(h)) return;
  const double rounding = epsilon(hlo_dtype(h, args[SVD_COLUMNS])) * (4 + sqrt((double)hlo_dim(h, args[SVD_COLUMNS], 2)));
  const hlo_val_t is_open = map_cmp_k(h, "GT", args[SVD_WORST], rounding * rounding);
  const hlo_val_t in_time = map_cmp_k(h, "LT", args[SVD_SWEEP], SWEEPS_MOST);
  results[0] = hlo_and(h, is_open, in_time);
}

/* Tall |a| [B, m, n], m >= n. |sigma| [B, n] descending; |u| [B, m, |columns|]; |v_rows| [B, n, n]: v transposed. The left
 * vectors are A V made orthonormal by reflectors: its columns are orthogonal already, so this only scales them, and
 * completes the basis where singular values vanish or more columns are wanted. */
static void svd_tall(hlo_t *h, hlo_val_t a, int64_t columns, hlo_val_t *sigma, hlo_val_t *u, hlo_val_t *v_rows) {
  *sigma = 0;
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = hlo_dtype(h, a), real = ttpu_dtype_real(t);
  const int64_t batch = hlo_dim(h, a, 0), m = hlo_dim(h, a, 1), n = hlo_dim(h, a, 2);
  hlo_val_t scale;
  const hlo_val_t small = scaled_down(h, a, &scale);
  const hlo_val_t as_rows = hlo_swap(h, small, 1, 2), identity = linalg_identity(h, t, batch, n, n);
  const hlo_val_t even = even_rows(h, as_rows, 1), vectors = even_rows(h, identity, 1);
  const hlo_val_t open = hlo_const(h, real, 1), sweep = hlo_const_int(h, TTPU_I32, 0);
  const hlo_val_t init[] = {even, vectors, open, sweep};
  hlo_val_t out[SVD_CARRIED] = {even, vectors, open, sweep};
  if (n > 1) hlo_while(h, SVD_CARRIED, init, svd_goes_on, svd_sweep, NULL, out);

  const hlo_val_t own = hlo_slice_dim(h, out[SVD_COLUMNS], 1, 0, n, 1);
  const hlo_val_t norms = row_norms(h, own);
  const hlo_val_t sizes = hlo_sqrt(h, norms);
  hlo_val_t sorted, order;
  part_sort(h, sizes, 1, true, &sorted, &order);
  const hlo_val_t factor = hlo_unsqueeze(h, scale, 1);
  *sigma = hlo_mul(h, sorted, factor);
  if (!u) return;
  const hlo_val_t v_own = hlo_slice_dim(h, out[SVD_VECTORS], 1, 0, n, 1);
  *v_rows = reorder(h, v_own, order);
  const hlo_val_t in_order = reorder(h, own, order);
  const hlo_val_t av = hlo_swap(h, in_order, 1, 2);
  hlo_val_t packed, tau;
  linalg_reflect(h, av, &packed, &tau);
  const hlo_val_t start = linalg_identity(h, t, batch, m, columns);
  const hlo_val_t q = linalg_apply_reflectors(h, packed, tau, start, false);
  /* R's diagonal is sigma up to a sign or phase, which moves into Q. */
  const hlo_val_t r = linalg_diagonal(h, packed);
  const hlo_val_t size = hlo_abs(h, r);
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", size, 0);
  const hlo_val_t safe = map_then_k(h, is_zero, 1, size);
  const hlo_val_t divisor = hlo_convert(h, safe, t);
  const hlo_val_t turned = hlo_div(h, r, divisor);
  hlo_val_t phase = map_then_k(h, is_zero, 1, turned);
  if (columns > n) phase = hlo_pad_dim(h, phase, 1, 1, 0, columns - n);
  const hlo_val_t row = hlo_unsqueeze(h, phase, 1);
  *u = hlo_mul(h, q, row);
}

static void ret(hlo_t *h, const op_call_t *c, int k, hlo_val_t value) {
  if (!op_result_wanted(c, k)) return;
  const hlo_val_t shaped = part_as_result(h, c, k, value);
  op_ret(h, c, k, shaped);
}

EMIT(linalg_svd) {
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const bool full = op_bool(c, 1, false), with_vectors = op_bool(c, 2, true);
  const int64_t batch = hlo_dim(h, a, 0), m = hlo_dim(h, a, 1), n = hlo_dim(h, a, 2);
  if (hlo_numel(h, a) == 0 || !with_vectors) {
    hlo_val_t sigma = 0;
    if (hlo_numel(h, a) > 0) {
      const hlo_val_t tall = m >= n ? a : linalg_adjoint(h, a);
      svd_tall(h, tall, 0, &sigma, NULL, NULL);
      ret(h, c, 1, sigma);
    }
    for (int k = 0; k < 3; k++) {
      if ((k == 1 && sigma) || !op_result_wanted(c, k)) continue;
      /* A basis of nothing is completed by the identity. */
      const bool square = with_vectors && full && k != 1;
      const int64_t size = k == 0 ? m : n;
      const hlo_val_t none = square ? linalg_identity(h, op_result_dtype(c, k), batch, size, size)
                                    : hlo_full(h, op_result_dtype(c, k), op_result_rank(c, k), op_result_dims(c, k), 0);
      ret(h, c, k, none);
    }
    return;
  }
  hlo_val_t sigma, u = 0, v_rows = 0;
  if (m >= n) {
    svd_tall(h, a, full ? m : n, &sigma, &u, &v_rows);
    const hlo_val_t vh = linalg_conj(h, v_rows);
    ret(h, c, 0, u);
    ret(h, c, 2, vh);
  } else {
    const hlo_val_t tall = linalg_adjoint(h, a);
    svd_tall(h, tall, full ? n : m, &sigma, &u, &v_rows);
    const hlo_val_t left = hlo_swap(h, v_rows, 1, 2), vh = linalg_adjoint(h, u);
    ret(h, c, 0, left);
    ret(h, c, 2, vh);
  }
  ret(h, c, 1, sigma);
}
