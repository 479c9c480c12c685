/* reduce.c: reductions over some or all dimensions. Sums of half types accumulate in f32, of integers in i64 (the
 * result's type). Arguments follow PyTorch's order: input, dims, keepdim, dtype; |dim| may be missing or empty: all.
 * Scans (cumsum and the like) are at the end.
 */
#include "ops/map.h"

#include <string.h>

/* Gives result |k|, putting the reduced dimensions back as ones where keepdim asked for them. */
static void give(hlo_t *h, const op_call_t *c, int k, hlo_val_t x) {
  op_ret(h, c, k, hlo_reshape(h, x, op_result_rank(c, k), op_result_dims(c, k)));
}

/* Argument 0 in |t| and the dimensions that argument |i| names; i < 0 or a missing argument: all. */
typedef struct {
  hlo_val_t x;
  int count, dims[TTPU_MAX_RANK];
  int64_t size; /* how many elements are reduced into one */
} reduce_t;

static reduce_t reduction(hlo_t *h, const op_call_t *c, ttpu_dtype_e t, int i) {
  reduce_t r = {.x = op_tensor_as(h, c, 0, t), .size = 1};
  const int rank = hlo_rank(h, r.x);
  if (rank == 0) return r; /* one element, whatever the dims say */
  if (i >= 0) {
    r.count = op_dims(c, i, rank, r.dims);
  } else {
    for (; r.count < rank; r.count++) r.dims[r.count] = r.count;
  }
  for (int j = 0; j < r.count; j++) r.size *= hlo_dim(h, r.x, r.dims[j]);
  return r;
}

static hlo_val_t reduce(hlo_t *h, const char *op, const reduce_t *r, hlo_val_t x) {
  return r->count ? hlo_reduce(h, op, x, r->count, r->dims) : x;
}

static hlo_val_t spread(hlo_t *h, const reduce_t *r, hlo_val_t x) {
  return r->count ? hlo_spread(h, x, r->x, r->count, r->dims) : x;
}

/* max and min with or and and for bool. */
static hlo_val_t reduce_extremum(hlo_t *h, const char *op, const reduce_t *r) {
  const bool is_max = strcmp(op, "maximum") == 0;
  return reduce(h, hlo_dtype(h, r->x) == TTPU_BOOL ? (is_max ? "or" : "and") : op, r, r->x);
}

/* --- sums and products ----------------------------------------------------------------------------------- */

/* |detail|: the op, then where the dims argument is ("add@1"); without '@' all dimensions. */
static int dims_at(const op_call_t *c) {
  const char *at = strchr(op_detail(c), '@');
  return at ? at[1] - '0' : -1;
}

EMIT(sum) {
  const reduce_t r = reduction(h, c, map_wide(op_result_dtype(c, 0)), dims_at(c));
  give(h, c, 0, reduce(h, "add", &r, r.x));
}

EMIT(nansum) {
  const reduce_t r = reduction(h, c, map_wide(op_result_dtype(c, 0)), 1);
  const bool has_nan = map_is_inexact(hlo_dtype(h, r.x));
  give(h, c, 0, reduce(h, "add", &r, has_nan ? map_then_k(h, hlo_is_nan(h, r.x), 0, r.x) : r.x));
}

EMIT(mean) {
  const reduce_t r = reduction(h, c, map_wide(op_result_dtype(c, 0)), dims_at(c));
  give(h, c, 0, map_div_k(h, reduce(h, "add", &r, r.x), (double)r.size));
}

/* prod(x) and prod.dim_int(x, dim). */
EMIT(prod) {
  reduce_t r = reduction(h, c, map_wide(op_result_dtype(c, 0)), -1);
  if (dims_at(c) > 0 && hlo_rank(h, r.x) > 0) {
    r.count = 1;
    r.dims[0] = op_dim(c, dims_at(c), hlo_rank(h, r.x));
  }
  give(h, c, 0, reduce(h, "multiply", &r, r.x));
}

EMIT(count_nonzero) {
  reduce_t r = reduction(h, c, TTPU_BOOL, strcmp(op_detail(c), "list") == 0 ? 1 : -1);
  if (strcmp(op_detail(c), "dim") == 0 && op_has(c, 1) && hlo_rank(h, r.x) > 0) {
    r.count = 1;
    r.dims[0] = op_dim(c, 1, hlo_rank(h, r.x));
  }
  give(h, c, 0, reduce(h, "add", &r, hlo_convert(h, r.x, TTPU_I64)));
}

EMIT(trace) {
  const hlo_val_t x = op_tensor_as(h, c, 0, map_wide(op_result_dtype(c, 0)));
  const hlo_val_t row = hlo_iota_like(h, TTPU_I32, x, 0);
  const hlo_val_t on_diagonal = hlo_eq(h, row, hlo_iota_like(h, TTPU_I32, x, 1));
  give(h, c, 0, hlo_reduce_all(h, "add", map_else_k(h, on_diagonal, x, 0)));
}

/* --- truth ------------------------------------------------------------------------------------------------- */

/* any and all; dims as in |detail| "or@1". */
EMIT(truth) {
  reduce_t r = reduction(h, c, TTPU_BOOL, dims_at(c));
  const int64_t *dims;
  /* Unlike elsewhere an empty list, if given, names no dimension. */
  if (dims_at(c) >= 0 && op_has(c, dims_at(c)) && op_ints(c, dims_at(c), &dims) == 0) r.count = 0;
  give(h, c, 0, reduce(h, op_detail(c)[0] == 'o' ? "or" : "and", &r, r.x));
}

/* any.dim and all.dim: one int. */
EMIT(truth_dim) {
  reduce_t r = reduction(h, c, TTPU_BOOL, -1);
  if (hlo_rank(h, r.x) > 0) {
    r.count = 1;
    r.dims[0] = op_dim(c, 1, hlo_rank(h, r.x));
  }
  give(h, c, 0, reduce(h, op_detail(c), &r, r.x));
}

/* --- extrema ------------------------------------------------------------------------------------------------ */

/* amax, amin, and max and min of everything. */
EMIT(amax) {
  const bool is_max = strncmp(op_detail(c), "max", 3) == 0;
  const reduce_t r = reduction(h, c, op_arg_dtype(c, 0), dims_at(c));
  give(h, c, 0, reduce_extremum(h, is_max ? "maximum" : "minimum", &r));
}

/* Both; |detail| "1" when argument 1 is an int dim. */
EMIT(aminmax) {
  reduce_t r = reduction(h, c, op_arg_dtype(c, 0), -1);
  if (*op_detail(c) && op_has(c, 1) && hlo_rank(h, r.x) > 0) {
    r.count = 1;
    r.dims[0] = op_dim(c, 1, hlo_rank(h, r.x));
  }
  give(h, c, 0, reduce_extremum(h, "minimum", &r));
  give(h, c, 1, reduce_extremum(h, "maximum", &r));
}

/* The first place along |dim| where |x| has its extreme value |top|; NaN is extreme. Two plain reductions beat one of
 * pairs: the compiler vectorises them. */
static hlo_val_t first_index(hlo_t *h, const reduce_t *r, hlo_val_t top, int dim) {
  hlo_val_t is_top = hlo_eq(h, r->x, spread(h, r, top));
  if (ttpu_dtype_is_float(hlo_dtype(h, r->x))) is_top = hlo_or(h, is_top, hlo_is_nan(h, r->x));
  const ttpu_dtype_e t = hlo_dim(h, r->x, dim) <= INT32_MAX ? TTPU_I32 : TTPU_I64;
  const hlo_val_t place = hlo_iota_like(h, t, r->x, dim);
  const hlo_val_t candidate = hlo_select(h, is_top, place, hlo_highest(h, t));
  return reduce(h, "minimum", r, candidate);
}

/* max.dim and min.dim: value and index. */
EMIT(max_dim) {
  reduce_t r = reduction(h, c, op_arg_dtype(c, 0), -1);
  const int rank = hlo_rank(h, r.x);
  if (rank > 0) {
    r.count = 1;
    r.dims[0] = op_dim(c, 1, rank);
  }
  const hlo_val_t top = reduce_extremum(h, op_detail(c), &r);
  give(h, c, 0, top);
  give(h, c, 1, rank > 0 ? first_index(h, &r, top, r.dims[0]) : hlo_const_int(h, TTPU_I64, 0));
}

/* argmax and argmin; without dim over the flattened tensor. */
EMIT(argmax) {
  reduce_t r = reduction(h, c, op_arg_dtype(c, 0), -1);
  if (op_has(c, 1)) {
    if (hlo_rank(h, r.x) > 0) r.dims[0] = op_dim(c, 1, hlo_rank(h, r.x));
  } else {
    r.x = hlo_flatten(h, r.x);
    r.dims[0] = 0;
  }
  if (hlo_rank(h, r.x) == 0) {
    give(h, c, 0, hlo_const_int(h, TTPU_I64, 0));
    return;
  }
  r.count = 1;
  const hlo_val_t top = reduce_extremum(h, op_detail(c), &r);
  give(h, c, 0, first_index(h, &r, top, r.dims[0]));
}

/* --- moments ------------------------------------------------------------------------------------------------ */

/* The mean, and the sum of squared distances from it over max(0, n - correction); complex numbers add both parts. */
static void moments(hlo_t *h, const op_call_t *c, hlo_val_t *out_variance, hlo_val_t *out_mean) {
  reduce_t r = reduction(h, c, map_wide(op_arg_dtype(c, 0)), 1);
  const hlo_val_t mean = map_div_k(h, reduce(h, "add", &r, r.x), (double)r.size);
  const hlo_val_t distance = hlo_sub(h, r.x, spread(h, &r, mean));
  hlo_val_t square;
  if (ttpu_dtype_is_complex(hlo_dtype(h, distance))) {
    const hlo_val_t re = hlo_real(h, distance);
    const hlo_val_t im = hlo_imag(h, distance);
    const hlo_val_t re_square = hlo_mul(h, re, re);
    square = hlo_add(h, re_square, hlo_mul(h, im, im));
  } else {
    square = hlo_mul(h, distance, distance);
  }
  const hlo_val_t sum = reduce(h, "add", &r, square);
  const hlo_val_t correction = op_has(c, 2) ? op_scalar(h, c, 2, hlo_dtype(h, sum)) : hlo_like(h, sum, 1);
  const hlo_val_t freedom = map_max_k(h, map_k_sub(h, (double)r.size, correction), 0);
  *out_variance = hlo_div(h, sum, freedom);
  *out_mean = mean;
}

/* var and std, alone or with the mean; |detail| begins with 's' for std. */
EMIT(var) {
  hlo_val_t variance, mean;
  moments(h, c, &variance, &mean);
  give(h, c, 0, op_detail(c)[0] == 's' ? hlo_sqrt(h, variance) : variance);
  if (op_result_count(c) > 1) give(h, c, 1, mean);
}

/* --- norms -------------------------------------------------------------------------------------------------- */

/* The p-norm of |x| over r's dims, or without the root when |is_power|. */
static hlo_val_t p_norm(hlo_t *h, const reduce_t *r, double p, bool is_power) {
  const hlo_val_t size = hlo_abs(h, r->x);
  if (p == 0) return reduce(h, "add", r, hlo_convert(h, map_cmp_k(h, "NE", size, 0), hlo_dtype(h, size)));
  if (p == 1) return reduce(h, "add", r, size);
  if (isinf(p)) return reduce(h, p > 0 ? "maximum" : "minimum", r, size);
  if (p == 2) {
    const hlo_val_t sum = reduce(h, "add", r, hlo_mul(h, size, size));
    return is_power ? sum : hlo_sqrt(h, sum);
  }
  const hlo_val_t sum = reduce(h, "add", r, hlo_pow(h, size, hlo_like(h, size, p)));
  return is_power ? sum : hlo_pow(h, sum, hlo_like(h, sum, 1 / p));
}

/* vector norms: input, order, then dims where |detail| says so ("@2"). The row is OP_STATIC. The input is first turned
 * into the dtype asked for, which may be the result's real type or its complex one. */
EMIT(norm) {
  ttpu_dtype_e t = map_wide(op_result_dtype(c, 0));
  if (ttpu_dtype_is_complex(op_arg_dtype(c, 0)) && !ttpu_dtype_is_complex(t)) t = ttpu_dtype_complex(t);
  const reduce_t r = reduction(h, c, t, dims_at(c));
  give(h, c, 0, p_norm(h, &r, op_number(h, c, 1, 2), op_detail(c)[0] == 'p'));
}

/* log(sum(exp(x))) from the greatest (real part of) x; infinite maxima are not subtracted. */
EMIT(logsumexp) {
  const reduce_t r = reduction(h, c, map_float_of(c, op_arg_dtype(c, 0)), 1);
  reduce_t real = r;
  const bool is_complex = ttpu_dtype_is_complex(hlo_dtype(h, r.x));
  if (is_complex) real.x = hlo_real(h, r.x);
  hlo_val_t top = reduce(h, "maximum", &real, real.x);
  top = map_then_k(h, map_is_inf(h, top), 0, top);
  if (is_complex) top = hlo_convert(h, top, hlo_dtype(h, r.x));
  const hlo_val_t sum = reduce(h, "add", &r, hlo_exp(h, hlo_sub(h, r.x, spread(h, &r, top))));
  give(h, c, 0, hlo_add(h, hlo_log(h, sum), top));
}

/* --- hash_tensor: exclusive or of the elements' bits, widened to 64 ------------------------------------------ */

static void xor_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_xor(h, args[0], args[1]);
}

EMIT(hash_tensor) {
  const ttpu_dtype_e t = op_arg_dtype(c, 0);
  reduce_t r = reduction(h, c, ttpu_dtype_is_float(t) ? TTPU_F64 : t, 1);
  if (ttpu_dtype_is_complex(t)) {
    hlo_fail_code(h, TTPU_UNIMPLEMENTED, "hash_tensor does not take complex tensors");
    return;
  }
  r.x = ttpu_dtype_is_float(t) ? hlo_bitcast(h, r.x, TTPU_U64) : hlo_convert(h, r.x, TTPU_U64);
  const hlo_val_t zero = hlo_const_int(h, TTPU_U64, 0);
  hlo_val_t hash = r.x;
  if (r.count) hlo_reduce_n(h, 1, &r.x, &zero, r.count, r.dims, xor_step, NULL, &hash);
  give(h, c, 0, hash);
}

/* --- scans: a window over all elements before, which the compiler turns into a tree --------------------------- */

/* Geometry of a scan along |dim|; false when there is nothing to combine. */
typedef struct {
  int64_t window[TTPU_MAX_RANK], before[TTPU_MAX_RANK];
} scan_t;

static bool scan_init(hlo_t *h, hlo_val_t x, int dim, scan_t *s) {
  const int rank = hlo_rank(h, x);
  if (rank == 0 || hlo_numel(h, x) == 0 || hlo_dim(h, x, dim) < 2) return false;
  for (int i = 0; i < rank; i++) {
    s->window[i] = 1;
    s->before[i] = 0;
  }
  s->window[dim] = hlo_dim(h, x, dim);
  s->before[dim] = s->window[dim] - 1;
  return true;
}

static hlo_val_t scan(hlo_t *h, const char *op, hlo_val_t x, hlo_val_t init, int dim) {
  scan_t s;
  if (!scan_init(h, x, dim, &s)) return x;
  return hlo_reduce_window(h, op, x, init, s.window, NULL, NULL, NULL, s.before, NULL);
}

/* cumsum and cumprod. */
EMIT(cumulate) {
  const ttpu_dtype_e t = map_wide(op_result_dtype(c, 0));
  const hlo_val_t x = op_tensor_as(h, c, 0, t);
  const int dim = op_dim(c, 1, hlo_rank(h, x));
  const char *op = op_detail(c);
  op_ret(h, c, 0, scan(h, op, x, hlo_const(h, t, strcmp(op, "multiply") == 0), dim));
}

static hlo_val_t scan_extremum(hlo_t *h, bool is_max, hlo_val_t x, int dim) {
  const ttpu_dtype_e t = hlo_dtype(h, x);
  if (t == TTPU_BOOL) return scan(h, is_max ? "or" : "and", x, hlo_const_int(h, t, !is_max), dim);
  return scan(h, is_max ? "maximum" : "minimum", x, is_max ? hlo_lowest(h, t) : hlo_highest(h, t), dim);
}

/* cummax and cummin: values, and the last place that set or equalled them; the dim is at |detail|'s '@'. */
EMIT(cummax) {
  const bool is_max = strncmp(op_detail(c), "max", 3) == 0;
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_rank(h, x) == 0) {
    op_ret(h, c, 0, x);
    op_ret(h, c, 1, hlo_const_int(h, TTPU_I64, 0));
    return;
  }
  const int dim = op_dim(c, dims_at(c), hlo_rank(h, x));
  const hlo_val_t top = scan_extremum(h, is_max, x, dim);
  hlo_val_t is_record = hlo_eq(h, x, top);
  if (ttpu_dtype_is_float(hlo_dtype(h, x))) is_record = hlo_or(h, is_record, hlo_is_nan(h, x));
  const ttpu_dtype_e t = hlo_dim(h, x, dim) <= INT32_MAX ? TTPU_I32 : TTPU_I64;
  const hlo_val_t place = map_else_k(h, is_record, hlo_iota_like(h, t, x, dim), 0);
  op_ret(h, c, 0, top);
  op_ret(h, c, 1, scan_extremum(h, true, place, dim));
}

static void log_add_exp_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = map_log_add_exp(h, args[0], args[1]);
}

EMIT(logcumsumexp) {
  const hlo_val_t x = map_arg(h, c, 0);
  const ttpu_dtype_e t = hlo_dtype(h, x);
  hlo_val_t sum = x;
  scan_t s;
  if (scan_init(h, x, op_dim(c, 1, hlo_rank(h, x)), &s)) {
    const bool is_complex = ttpu_dtype_is_complex(t);
    const hlo_val_t init = is_complex ? hlo_const_complex(h, t, -INFINITY, 0) : hlo_const(h, t, -INFINITY);
    hlo_reduce_window_n(h, 1, &x, &init, s.window, NULL, NULL, NULL, s.before, NULL, log_add_exp_step, NULL, &sum);
  }
  op_ret(h, c, 0, sum);
}
