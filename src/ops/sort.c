/* sort.c: order statistics, searches and histograms. */
#include <math.h>
#include <string.h>

#include "ops/part.h"

/* --- sorting ------------------------------------------------------------------------------------------ */

EMIT(sort) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const hlo_val_t x = part_at_least_1d(h, raw);
  hlo_val_t values, indices;
  part_sort(h, x, op_dim(c, 2, hlo_rank(h, raw)), op_bool(c, 3, false), &values, &indices);
  values = part_as_result(h, c, 0, values);
  indices = part_as_result(h, c, 1, indices);
  op_ret(h, c, 0, values);
  op_ret(h, c, 1, indices);
}

EMIT(topk) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const hlo_val_t x = part_at_least_1d(h, raw);
  hlo_val_t values, indices;
  part_top(h, x, op_dim(c, 2, hlo_rank(h, raw)), op_int(c, 1, 1), op_bool(c, 3, true), &values, &indices);
  values = part_as_result(h, c, 0, values);
  indices = part_as_result(h, c, 1, indices);
  op_ret(h, c, 0, values);
  op_ret(h, c, 1, indices);
}

EMIT(kthvalue) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const hlo_val_t x = part_at_least_1d(h, raw);
  const int dim = op_dim(c, 2, hlo_rank(h, raw));
  const int64_t k = op_int(c, 1, 1);
  hlo_val_t values, indices;
  part_sort(h, x, dim, false, &values, &indices);
  values = hlo_slice_dim(h, values, dim, k - 1, k, 1);
  indices = hlo_slice_dim(h, indices, dim, k - 1, k, 1);
  values = part_as_result(h, c, 0, values);
  indices = part_as_result(h, c, 1, indices);
  op_ret(h, c, 0, values);
  op_ret(h, c, 1, indices);
}

/* --- medians and mode --------------------------------------------------------------------------------- */

/* The lower middle along |dim|, kept with size 1, of values in order: NaN, which is last, wins over it unless |skips|,
 * and then the middle is that of the numbers alone. */
static void middle(hlo_t *h, hlo_val_t x, int dim, bool skips, hlo_val_t *value, hlo_val_t *index) {
  hlo_val_t values, indices;
  part_sort(h, x, dim, false, &values, &indices);
  const int64_t n = hlo_dim(h, x, dim);
  if (!ttpu_dtype_is_float(hlo_dtype(h, x))) {
    *value = hlo_slice_dim(h, values, dim, (n - 1) / 2, (n - 1) / 2 + 1, 1);
    *index = hlo_slice_dim(h, indices, dim, (n - 1) / 2, (n - 1) / 2 + 1, 1);
    return;
  }
  const ttpu_dtype_e t = part_index_dtype(n);
  const hlo_val_t is_number = hlo_eq(h, values, values);
  const hlo_val_t ones = hlo_convert(h, is_number, t);
  const hlo_val_t sum = hlo_reduce_dim(h, "add", ones, dim);
  const hlo_val_t numbers = hlo_unsqueeze(h, sum, dim);
  const hlo_val_t extent = hlo_const_int(h, t, n), one = hlo_const_int(h, t, 1), zero = hlo_const_int(h, t, 0);
  hlo_val_t at;
  if (skips) {
    const hlo_val_t two = hlo_const_int(h, t, 2);
    const hlo_val_t last = hlo_sub(h, numbers, one);
    const hlo_val_t half = hlo_div(h, last, two);
    at = hlo_max(h, half, zero);
  } else {
    const hlo_val_t all = hlo_eq(h, numbers, extent);
    const hlo_val_t center = hlo_const_int(h, t, (n - 1) / 2);
    at = hlo_select(h, all, center, numbers);
  }
  *value = hlo_take_along(h, values, at, dim);
  *index = hlo_take_along(h, indices, at, dim);
}

EMIT(median) {
  const hlo_val_t raw = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const hlo_val_t x = hlo_flatten(h, raw);
  if (hlo_numel(h, x) == 0) {
    const hlo_val_t none = hlo_const(h, op_result_dtype(c, 0), ttpu_dtype_is_float(op_result_dtype(c, 0)) ? NAN : 0);
    op_ret(h, c, 0, none);
    return;
  }
  hlo_val_t value, index;
  middle(h, x, 0, !strcmp(op_detail(c), "nanmedian"), &value, &index);
  value = part_as_result(h, c, 0, value);
  op_ret(h, c, 0, value);
}

EMIT(median_dim) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const hlo_val_t x = part_at_least_1d(h, raw);
  hlo_val_t value, index;
  middle(h, x, op_dim(c, 1, hlo_rank(h, raw)), !strcmp(op_detail(c), "nanmedian"), &value, &index);
  value = part_as_result(h, c, 0, value);
  index = part_as_result(h, c, 1, index);
  op_ret(h, c, 0, value);
  op_ret(h, c, 1, index);
}

/* Values in order: a run starts where an element differs from the one before. The longest run wins, the first of equal
 * ones; its last element is the result. The latest start so far is a running maximum. */
EMIT(mode) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const hlo_val_t x = part_at_least_1d(h, raw);
  const int dim = op_dim(c, 1, hlo_rank(h, raw));
  hlo_val_t values, indices;
  part_sort(h, x, dim, false, &values, &indices);
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, x, dim);
  const ttpu_dtype_e t = part_index_dtype(n);
  const hlo_val_t place = hlo_iota_like(h, t, values, dim);
  hlo_val_t length = hlo_full_like(h, place, 1);
  if (n > 1) {
    const hlo_val_t next = hlo_slice_dim(h, values, dim, 1, n, 1), previous = hlo_slice_dim(h, values, dim, 0, n - 1, 1);
    const hlo_val_t differs = hlo_ne(h, next, previous);
    const hlo_val_t is_start = hlo_pad_dim(h, differs, 1, dim, 1, 0);
    const hlo_val_t zero = hlo_const_int(h, t, 0);
    const hlo_val_t starts = hlo_select(h, is_start, place, zero);
    const hlo_val_t start = part_prefix(h, "maximum", starts, dim);
    length = hlo_sub(h, place, start);
  }
  const hlo_val_t longest = hlo_reduce_dim(h, "maximum", length, dim);
  const hlo_val_t target = hlo_unsqueeze(h, longest, dim);
  const hlo_val_t is_longest = hlo_eq(h, length, target);
  const hlo_val_t extent = hlo_const_int(h, t, n);
  const hlo_val_t candidates = hlo_select(h, is_longest, place, extent);
  const hlo_val_t first = hlo_reduce_dim(h, "minimum", candidates, dim);
  const hlo_val_t at = hlo_unsqueeze(h, first, dim);
  hlo_val_t value = hlo_take_along(h, values, at, dim), index = hlo_take_along(h, indices, at, dim);
  value = part_as_result(h, c, 0, value);
  index = part_as_result(h, c, 1, index);
  op_ret(h, c, 0, value);
  op_ret(h, c, 1, index);
}

/* --- searches ----------------------------------------------------------------------------------------- */

/* |sorted| is one row, or a row for each row of |values|; the result is shaped as result 0. */
static void ret_search(hlo_t *h, const op_call_t *c, hlo_val_t sorted, hlo_val_t values, bool right) {
  if (hlo_failed(h)) return;
  hlo_val_t rows = sorted, v = values;
  if (hlo_rank(h, sorted) > 1) {
    rows = part_batched(h, sorted, 1);
    v = part_batched(h, values, 1);
  }
  const hlo_val_t count = part_bisect(h, rows, v, right);
  const hlo_val_t shaped = part_as_result(h, c, 0, count);
  op_ret(h, c, 0, shaped);
}

EMIT(searchsorted) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  hlo_val_t sorted = op_tensor_as(h, c, 0, t);
  const hlo_val_t raw = op_tensor_as(h, c, 1, t);
  const hlo_val_t values = part_at_least_1d(h, raw);
  if (op_has(c, 5)) {
    const hlo_val_t sorter = op_tensor(h, c, 5);
    if (hlo_failed(h)) return;
    sorted = hlo_take_along(h, sorted, sorter, hlo_rank(h, sorted) - 1);
  }
  ret_search(h, c, sorted, values, op_bool(c, 3, false) || !strcmp(op_string(c, 4), "right"));
}

EMIT(bucketize) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  const hlo_val_t raw = op_tensor_as(h, c, 0, t), sorted = op_tensor_as(h, c, 1, t);
  const hlo_val_t values = part_at_least_1d(h, raw);
  ret_search(h, c, sorted, values, op_bool(c, 3, false));
}

/* Up to this many elements are compared one by one, which fuses into one loop; more are sorted and searched. */
enum { ISIN_COMPARED = 256 };

EMIT(isin) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  const hlo_val_t raw = op_tensor_as(h, c, 0, t), others = op_tensor_as(h, c, 1, t);
  if (hlo_failed(h)) return;
  const hlo_val_t x = hlo_flatten(h, raw), set = hlo_flatten(h, others);
  const int64_t m = hlo_numel(h, set);
  hlo_val_t found;
  if (m == 0) {
    found = hlo_full(h, TTPU_BOOL, 1, hlo_dims(h, x), 0);
  } else if (m <= ISIN_COMPARED) {
    const hlo_val_t column = hlo_unsqueeze(h, x, 1);
    const hlo_val_t equal = hlo_eq(h, column, set);
    found = hlo_reduce_dim(h, "or", equal, 1);
  } else {
    hlo_val_t sorted, from;
    part_sort(h, set, 0, false, &sorted, &from);
    const hlo_val_t place = part_bisect(h, sorted, x, false);
    const hlo_val_t last = hlo_const_int(h, hlo_dtype(h, place), m - 1);
    const hlo_val_t legal = hlo_min(h, place, last);
    const hlo_val_t nearest = hlo_index_select(h, sorted, legal, 0);
    found = hlo_eq(h, nearest, x);
  }
  if (op_bool(c, 3, false)) found = hlo_not(h, found);
  const hlo_val_t shaped = part_as_result(h, c, 0, found);
  op_ret(h, c, 0, shaped);
}

/* --- histograms --------------------------------------------------------------------------------------- */

/* Adds |weights| (or ones) onto |bins| counters of type |t| at |bin|; positions outside are dropped. */
static hlo_val_t count_bins(hlo_t *h, hlo_val_t bin, hlo_val_t weights, int64_t bins, ttpu_dtype_e t) {
  const hlo_val_t zero = hlo_const(h, t, 0), one = hlo_const(h, t, 1);
  const hlo_val_t counters = hlo_expand(h, zero, 1, &bins);
  const hlo_val_t at = hlo_unsqueeze(h, bin, 1);
  const hlo_val_t updates = weights ? weights : hlo_expand_like(h, one, bin);
  const int first = 0;
  const hlo_scatter_t s = {.inserted_count = 1, .inserted_dims = &first, .map_count = 1, .scatter_map = &first};
  return hlo_scatter(h, "add", counters, at, updates, &s);
}

/* Equal limits mean those of the data; equal data widen them by |margin| on each side. */
static void limits_of(hlo_t *h, hlo_val_t x, double margin, hlo_val_t *low, hlo_val_t *high) {
  const hlo_val_t unset = hlo_eq(h, *low, *high);
  if (hlo_numel(h, x) > 0) {
    const hlo_val_t least = hlo_reduce_all(h, "minimum", x), greatest = hlo_reduce_all(h, "maximum", x);
    *low = hlo_select(h, unset, least, *low);
    *high = hlo_select(h, unset, greatest, *high);
  }
  const hlo_val_t more = hlo_like(h, *low, margin);
  const hlo_val_t equal = hlo_eq(h, *low, *high);
  const hlo_val_t below = hlo_sub(h, *low, more), above = hlo_add(h, *high, more);
  *low = hlo_select(h, equal, below, *low);
  *high = hlo_select(h, equal, above, *high);
}

/* The bin of each element between |low| and |high| in |bins| equal ones; the last bin holds its right edge. Elements
 * outside get |bins|. */
static hlo_val_t linear_bin(hlo_t *h, hlo_val_t x, hlo_val_t low, hlo_val_t high, int64_t bins) {
  const ttpu_dtype_e t = part_index_dtype(bins);
  const hlo_val_t count = hlo_like(h, x, (double)bins);
  const hlo_val_t offset = hlo_sub(h, x, low), width = hlo_sub(h, high, low);
  const hlo_val_t scaled = hlo_mul(h, offset, count);
  const hlo_val_t place = hlo_div(h, scaled, width);
  const hlo_val_t whole = hlo_convert(h, place, t);
  const hlo_val_t last = hlo_const_int(h, t, bins - 1), outside = hlo_const_int(h, t, bins);
  const hlo_val_t bin = hlo_min(h, whole, last);
  const hlo_val_t not_below = hlo_ge(h, x, low), not_above = hlo_le(h, x, high);
  const hlo_val_t inside = hlo_and(h, not_below, not_above);
  return hlo_select(h, inside, bin, outside);
}

EMIT(histc) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = map_wide(op_arg_dtype(c, 0));
  const hlo_val_t raw = op_tensor_as(h, c, 0, t);
  hlo_val_t low = op_scalar(h, c, 2, t), high = op_scalar(h, c, 3, t);
  if (hlo_failed(h)) return;
  const int64_t bins = op_int(c, 1, 100);
  const hlo_val_t x = hlo_flatten(h, raw);
  limits_of(h, x, 1, &low, &high);
  const hlo_val_t bin = linear_bin(h, x, low, high, bins);
  const hlo_val_t counts = count_bins(h, bin, 0, bins, t);
  op_ret(h, c, 0, counts);
}

/* Bins are half-open except the last. Edges are given, or equally spaced; either way an element's bin is found by
 * searching the edges, so that counts agree with the edges returned. */
EMIT(histogram) {
  const bool counted = !strcmp(op_detail(c), "count");
  const int weight_arg = counted ? 3 : 2;
  const ttpu_dtype_e t = op_arg_dtype(c, 0);
  const hlo_val_t raw = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const hlo_val_t x = hlo_flatten(h, raw);
  hlo_val_t edges;
  if (counted) {
    const double *range;
    const bool has_range = op_doubles(c, 2, &range) == 2;
    hlo_val_t low = hlo_const(h, t, has_range ? range[0] : 0), high = hlo_const(h, t, has_range ? range[1] : 0);
    limits_of(h, x, 0.5, &low, &high);
    const int64_t bins = op_int(c, 1, 100), edge_count = bins + 1;
    const hlo_val_t i = hlo_iota(h, t, 1, &edge_count, 0), whole = hlo_const(h, t, (double)bins);
    const hlo_val_t half = hlo_const(h, t, (double)(edge_count / 2));
    const hlo_val_t width = hlo_sub(h, high, low);
    const hlo_val_t step = hlo_div(h, width, whole);
    const hlo_val_t up = hlo_mul(h, i, step);
    const hlo_val_t left = hlo_sub(h, whole, i);
    const hlo_val_t down = hlo_mul(h, left, step);
    const hlo_val_t from_low = hlo_add(h, low, up), from_high = hlo_sub(h, high, down);
    const hlo_val_t is_lower = hlo_lt(h, i, half);
    edges = hlo_select(h, is_lower, from_low, from_high);
  } else {
    edges = op_tensor_as(h, c, 1, t);
  }
  if (hlo_failed(h)) return;
  const int64_t n = hlo_numel(h, edges), bins = n - 1;
  const hlo_val_t reached = part_bisect(h, edges, x, true);
  const ttpu_dtype_e it = hlo_dtype(h, reached);
  const hlo_val_t one = hlo_const_int(h, it, 1), last = hlo_const_int(h, it, bins - 1), outside = hlo_const_int(h, it, bins);
  const hlo_val_t place = hlo_sub(h, reached, one);
  const hlo_val_t capped = hlo_min(h, place, last);
  const hlo_val_t low_edge = hlo_slice_dim(h, edges, 0, 0, 1, 1), high_edge = hlo_slice_dim(h, edges, 0, n - 1, n, 1);
  const hlo_val_t not_below = hlo_ge(h, x, low_edge), not_above = hlo_le(h, x, high_edge);
  const hlo_val_t inside = hlo_and(h, not_below, not_above);
  const hlo_val_t bin = hlo_select(h, inside, capped, outside);
  hlo_val_t weights = 0;
  if (op_has(c, weight_arg)) {
    const hlo_val_t given = op_tensor_as(h, c, weight_arg, t);
    weights = hlo_flatten(h, given);
  }
  hlo_val_t counts = count_bins(h, bin, weights, bins, t);
  if (op_bool(c, weight_arg + 1, false)) {
    const hlo_val_t total = hlo_reduce_all(h, "add", counts);
    const hlo_val_t next = hlo_slice_dim(h, edges, 0, 1, n, 1), previous = hlo_slice_dim(h, edges, 0, 0, bins, 1);
    const hlo_val_t width = hlo_sub(h, next, previous);
    const hlo_val_t share = hlo_div(h, counts, total);
    counts = hlo_div(h, share, width);
  }
  op_ret(h, c, 0, counts);
  op_ret(h, c, 1, edges);
}
