/* part.c: see part.h. */
#include "ops/part.h"

#include <string.h>

bool part_ret_empty(hlo_t *h, const op_call_t *c) {
  if (ttpu_dims_numel(op_result_rank(c, 0), op_result_dims(c, 0)) > 0) return false;
  for (int k = 0; k < op_result_count(c); k++) {
    if (!op_result_wanted(c, k)) continue;
    const hlo_val_t zeros = hlo_full(h, op_result_dtype(c, k), op_result_rank(c, k), op_result_dims(c, k), 0);
    op_ret(h, c, k, zeros);
  }
  return true;
}

hlo_val_t part_at_least_1d(hlo_t *h, hlo_val_t x) {
  const int64_t one = 1;
  return hlo_rank(h, x) > 0 ? x : hlo_reshape(h, x, 1, &one);
}

hlo_val_t part_as_result(hlo_t *h, const op_call_t *c, int k, hlo_val_t x) {
  return hlo_reshape(h, x, op_result_rank(c, k), op_result_dims(c, k));
}

hlo_val_t part_batched(hlo_t *h, hlo_val_t x, int inner) {
  if (hlo_failed(h)) return 0;
  const int rank = hlo_rank(h, x), outer = rank - inner;
  if (outer < 0) return hlo_fail(h, "expected a tensor with at least %d dimensions, got %d", inner, rank);
  const int64_t *from = hlo_dims(h, x);
  int64_t dims[TTPU_MAX_RANK + 1] = {ttpu_dims_numel(outer, from)};
  for (int i = 0; i < inner; i++) dims[1 + i] = from[outer + i];
  return hlo_reshape(h, x, inner + 1, dims);
}

hlo_val_t part_wrap(hlo_t *h, hlo_val_t index, int64_t size) {
  const ttpu_dtype_e t = part_index_dtype(size);
  const hlo_val_t i = hlo_convert(h, index, t);
  if (ttpu_dtype_kind(hlo_dtype(h, index)) == 'u') return i;
  const hlo_val_t extent = hlo_const_int(h, t, size), zero = hlo_const_int(h, t, 0);
  const hlo_val_t from_end = hlo_add(h, i, extent);
  const hlo_val_t is_negative = hlo_lt(h, i, zero);
  return hlo_select(h, is_negative, from_end, i);
}

hlo_val_t part_prefix(hlo_t *h, const char *op, hlo_val_t x, int dim) {
  if (hlo_failed(h)) return 0;
  const int rank = hlo_rank(h, x);
  const int64_t n = hlo_dim(h, x, dim);
  if (n <= 1) return x;
  int64_t window[TTPU_MAX_RANK], low[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++) window[i] = i == dim ? n : 1, low[i] = i == dim ? n - 1 : 0;
  const ttpu_dtype_e t = hlo_dtype(h, x);
  const hlo_val_t neutral = !strcmp(op, "add") ? hlo_const_int(h, t, 0)
                            : !strcmp(op, "maximum") ? hlo_lowest(h, t)
                                                     : hlo_highest(h, t);
  return hlo_reduce_window(h, op, x, neutral, window, NULL, NULL, NULL, low, NULL);
}

/* Binary search, all values at once: one step of every search a trip. Carried: the rows, the values, and the bounds
 * [low, high) of where the answer lies. */
typedef struct {
  bool right;
  int64_t n;
} bisect_t;

static void bisect_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const bisect_t *b = ctx;
  const hlo_val_t sorted = args[1], values = args[2], low = args[3], high = args[4];
  const ttpu_dtype_e t = hlo_dtype(h, low);
  const hlo_val_t two = hlo_const_int(h, t, 2), one = hlo_const_int(h, t, 1), last = hlo_const_int(h, t, b->n - 1);
  const hlo_val_t width = hlo_sub(h, high, low);
  const hlo_val_t half = hlo_div(h, width, two);
  const hlo_val_t middle = hlo_add(h, low, half);
  const hlo_val_t legal = hlo_min(h, middle, last);
  hlo_val_t x;
  if (hlo_rank(h, sorted) == 1) {
    x = hlo_index_select(h, sorted, legal, 0);
  } else {
    x = hlo_take_along(h, sorted, legal, 1);
  }
  /* Negated comparisons, so that NaN on either side goes right. */
  const hlo_val_t stops = hlo_cmp(h, b->right ? "GT" : "GE", x, values);
  const hlo_val_t is_open = hlo_lt(h, low, high);
  const hlo_val_t goes_on = hlo_not(h, stops);
  const hlo_val_t raises = hlo_and(h, is_open, goes_on);
  const hlo_val_t lowers = hlo_and(h, is_open, stops);
  const hlo_val_t above = hlo_add(h, middle, one);
  results[0] = sorted;
  results[1] = values;
  results[2] = hlo_select(h, raises, above, low);
  results[3] = hlo_select(h, lowers, middle, high);
}

hlo_val_t part_bisect(hlo_t *h, hlo_val_t sorted, hlo_val_t values, bool right) {
  if (hlo_failed(h)) return 0;
  const int rank = hlo_rank(h, values);
  int64_t dims[TTPU_MAX_RANK];
  memcpy(dims, hlo_dims(h, values), (size_t)rank * sizeof *dims);
  bisect_t b = {.right = right, .n = hlo_dim(h, sorted, -1)};
  const ttpu_dtype_e t = part_index_dtype(b.n);
  hlo_val_t v = hlo_rank(h, sorted) == 1 ? hlo_flatten(h, values) : values;
  /* The reads need elements to read. */
  if (b.n == 0 || hlo_numel(h, values) == 0) return hlo_full(h, t, rank, dims, 0);
  int64_t trips = 1;
  while ((b.n >> trips) > 0) trips++;
  const hlo_val_t low = hlo_full(h, t, hlo_rank(h, v), hlo_dims(h, v), 0);
  const hlo_val_t extent = hlo_const_int(h, t, b.n);
  const hlo_val_t high = hlo_expand_like(h, extent, low);
  const hlo_val_t init[] = {sorted, v, low, high};
  hlo_val_t out[4];
  hlo_for(h, trips, 4, init, bisect_step, &b, out);
  return hlo_reshape(h, out[2], rank, dims);
}

hlo_val_t part_positions(hlo_t *h, hlo_val_t mask, int64_t count) {
  if (hlo_failed(h)) return 0;
  const ttpu_dtype_e t = part_index_dtype(hlo_numel(h, mask));
  const hlo_val_t ones = hlo_convert(h, mask, t);
  const hlo_val_t seen = part_prefix(h, "add", ones, 0);
  const hlo_val_t wanted = hlo_iota(h, t, 1, &count, 0);
  return part_bisect(h, seen, wanted, true);
}

typedef struct {
  bool descending;
} order_t;

static void order(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const order_t *o = ctx;
  results[0] = hlo_cmp_total(h, o->descending ? "GT" : "LT", args[0], args[1]);
}

void part_sort(hlo_t *h, hlo_val_t x, int dim, bool descending, hlo_val_t *values, hlo_val_t *indices) {
  const hlo_val_t from = hlo_iota_like(h, part_index_dtype(hlo_dim(h, x, dim)), x, dim);
  const hlo_val_t xs[] = {x, from};
  hlo_val_t out[2] = {0, 0};
  order_t o = {.descending = descending};
  hlo_sort(h, 2, xs, dim, true, order, &o, out);
  *values = out[0];
  *indices = out[1];
}

hlo_val_t part_pick(hlo_t *h, hlo_val_t x, int dim, hlo_val_t at) {
  if (hlo_failed(h)) return 0;
  const int rank = hlo_rank(h, x);
  hlo_val_t starts[TTPU_MAX_RANK];
  int64_t sizes[TTPU_MAX_RANK];
  const hlo_val_t zero = hlo_const_int(h, hlo_dtype(h, at), 0);
  for (int i = 0; i < rank; i++) starts[i] = i == dim ? at : zero, sizes[i] = i == dim ? 1 : hlo_dim(h, x, i);
  return hlo_dynamic_slice(h, x, starts, sizes);
}

hlo_val_t part_lower(hlo_t *h, int rank, const int64_t *dims, int64_t diagonal) {
  const int64_t *matrix = dims + rank - 2;
  const hlo_val_t row = hlo_iota(h, TTPU_I64, 2, matrix, 0), column = hlo_iota(h, TTPU_I64, 2, matrix, 1);
  const hlo_val_t offset = hlo_const_int(h, TTPU_I64, diagonal);
  const hlo_val_t reach = hlo_add(h, row, offset);
  return hlo_ge(h, reach, column);
}
