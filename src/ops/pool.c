/* pool.c: max, average, adaptive, fractional pooling and unpooling, with gradients.
 *
 * Windows are taps (window.h). Indices are what CPU PyTorch gives: the first maximum of a window, or its last NaN.
 * The value and the index of a maximum are two independent chains, so that each fuses into one loop: the index is the
 * least position whose value equals the maximum. Gradients of regular windows add up shifted copies and need no
 * scatter. The row's detail is the number of spatial dimensions.
 */
#include "ops/linmap.h"
#include "ops/nn.h"
#include "ops/window.h"

enum { MAX_UNROLLED = 64 };

static int spatial_of(const op_call_t *c) { return op_detail(c)[0] - '0'; }

static bool is_ready(hlo_t *h, int rank, int spatial, const op_call_t *c) {
  if (!hlo_failed(h) && rank < spatial)
    hlo_fail(h, "%s: expected at least %d dimensions, got %d", op_name(c), spatial, rank);
  return !hlo_failed(h);
}

/* Window of arguments kernel, stride, padding (and dilation where |dilated|) from argument |first| on. */
static ttpu_window_t read_window(const op_call_t *c, int first, bool dilated, int spatial, const int64_t *in,
                                 const int64_t *out) {
  ttpu_window_t w = {.rank = spatial};
  const int64_t *stride = NULL;
  nn_ints(c, first, spatial, 1, w.size);
  nn_ints(c, first + 1, spatial, 1, w.stride);
  nn_ints(c, first + 2, spatial, 0, w.pad);
  const bool as_kernel = op_ints(c, first + 1, &stride) == 0;
  for (int d = 0; d < spatial; d++) {
    w.in[d] = in[d], w.out[d] = out[d], w.dilation[d] = 1;
    if (as_kernel) w.stride[d] = w.size[d];
  }
  if (dilated) nn_ints(c, first + 3, spatial, 1, w.dilation);
  return w;
}

/* The window of an adaptive pool whose outputs divide its inputs; false when they do not. */
static bool even_window(int spatial, const int64_t *in, const int64_t *out, ttpu_window_t *w) {
  *w = (ttpu_window_t){.rank = spatial};
  for (int d = 0; d < spatial; d++) {
    if (out[d] == 0 || in[d] == 0 || in[d] % out[d]) return false;
    w->in[d] = in[d], w->out[d] = out[d], w->dilation[d] = 1;
    w->size[d] = w->stride[d] = in[d] / out[d];
  }
  return true;
}

/* --- maxima of regular windows ------------------------------------------------------------------------------- */

/* Reduces (value, index) pairs: the greater value; NaN above all, the later NaN first; else the lower index. */
static void greater_pair(hlo_t *h, void *ctx, const hlo_val_t *a, hlo_val_t *r) {
  (void)ctx;
  const hlo_val_t above = hlo_gt(h, a[2], a[0]), same = hlo_eq(h, a[2], a[0]), lower = hlo_lt(h, a[3], a[1]);
  hlo_val_t take = hlo_and(h, same, lower);
  take = hlo_or(h, take, above);
  if (ttpu_dtype_is_float(hlo_dtype(h, a[0]))) {
    const hlo_val_t was = hlo_is_nan(h, a[0]), is = hlo_is_nan(h, a[2]), not_was = hlo_not(h, was);
    const hlo_val_t later = hlo_ge(h, a[3], a[1]);
    const hlo_val_t beats = hlo_or(h, not_was, later), by_nan = hlo_and(h, is, beats),
                    by_value = hlo_and(h, take, not_was);
    take = hlo_or(h, by_nan, by_value);
  }
  r[0] = hlo_select(h, take, a[2], a[0]);
  r[1] = hlo_select(h, take, a[3], a[1]);
}

/* Positions of the input plane, spread over x's leading dims. */
static hlo_val_t plane_positions(hlo_t *h, const ttpu_window_t *w, hlo_val_t x) {
  const int64_t count = ttpu_window_inputs(w);
  hlo_val_t i = hlo_iota(h, ttpu_window_index_type(w), 1, &count, 0);
  i = hlo_reshape(h, i, w->rank, w->in);
  return hlo_expand_like(h, i, x);
}

static void big_window_max(hlo_t *h, const ttpu_window_t *w, hlo_val_t x, hlo_val_t *out_value, hlo_val_t *out_index) {
  const hlo_val_t lowest = hlo_lowest(h, hlo_dtype(h, x));
  const hlo_val_t nowhere = hlo_const_int(h, ttpu_window_index_type(w), ttpu_window_nowhere(w));
  const hlo_val_t values = ttpu_window_pad(h, w, x, lowest);
  hlo_val_t xs[2] = {values, ttpu_window_pad(h, w, plane_positions(h, w, x), nowhere)}, inits[2] = {lowest, nowhere},
            r[2] = {0};
  if (hlo_failed(h)) return;
  const int rank = hlo_rank(h, x);
  int64_t size[TTPU_MAX_RANK], stride[TTPU_MAX_RANK], dilation[TTPU_MAX_RANK], ones[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++) size[i] = stride[i] = dilation[i] = ones[i] = 1;
  for (int d = 0; d < w->rank; d++) {
    const int i = rank - w->rank + d;
    const int64_t reach = (w->out[d] - 1) * w->stride[d] + (w->size[d] - 1) * w->dilation[d] + 1;
    size[i] = w->size[d], stride[i] = w->stride[d], dilation[i] = w->dilation[d];
    for (int k = 0; k < 2; k++)
      if (hlo_dim(h, xs[k], i) > reach) xs[k] = hlo_slice_dim(h, xs[k], i, 0, reach, 1);
  }
  hlo_reduce_window_n(h, 2, xs, inits, size, stride, ones, dilation, NULL, NULL, greater_pair, NULL, r);
  *out_value = r[0], *out_index = r[1];
}

/* |want_index| false: *out_index stays 0. */
static void window_max(hlo_t *h, const ttpu_window_t *w, hlo_val_t x, bool want_index, hlo_val_t *out_value,
                       hlo_val_t *out_index) {
  const int64_t taps = ttpu_window_taps(w);
  *out_value = *out_index = 0;
  if (taps > MAX_UNROLLED) {
    big_window_max(h, w, x, out_value, out_index);
    return;
  }
  const ttpu_dtype_e dtype = hlo_dtype(h, x);
  const hlo_val_t padded = ttpu_window_pad(h, w, x, hlo_lowest(h, dtype));
  hlo_val_t tap[MAX_UNROLLED], top = 0, first = 0, last_nan = 0;
  for (int64_t t = 0; t < taps; t++) {
    tap[t] = ttpu_window_tap(h, w, padded, t);
    top = t ? hlo_max(h, top, tap[t]) : tap[t];
  }
  *out_value = top;
  if (!want_index) return;
  const ttpu_dtype_e type = ttpu_window_index_type(w);
  const hlo_val_t nowhere = hlo_const_int(h, type, ttpu_window_nowhere(w)), none = hlo_const_int(h, type, -1);
  for (int64_t t = 0; t < taps; t++) {
    const hlo_val_t at = hlo_expand_like(h, ttpu_window_index(h, w, t), top), hit = hlo_eq(h, tap[t], top);
    const hlo_val_t here = hlo_select(h, hit, at, nowhere);
    first = t ? hlo_min(h, first, here) : here;
    if (!ttpu_dtype_is_float(dtype)) continue;
    const hlo_val_t nan = hlo_select(h, hlo_is_nan(h, tap[t]), at, none);
    last_nan = t ? hlo_max(h, last_nan, nan) : nan;
  }
  *out_index = ttpu_dtype_is_float(dtype) ? hlo_select(h, hlo_is_nan(h, top), last_nan, first) : first;
}

/* --- scatter into planes: for windows that are not regular ---------------------------------------------------- */

/* Puts |y| at |at| (positions in a plane of |in|, same dims as |y|) of a zero tensor of |rank| dims; |op| as
 * hlo_scatter. */
static hlo_val_t scatter_planes(hlo_t *h, const char *op, hlo_val_t y, hlo_val_t at, int spatial, int rank,
                                const int64_t *dims) {
  const hlo_val_t zero = hlo_full(h, hlo_dtype(h, y), rank, dims, 0);
  if (hlo_failed(h) || hlo_numel(h, y) == 0 || hlo_numel(h, zero) == 0) return zero;
  const int64_t plane = ttpu_dims_numel(spatial, dims + rank - spatial), planes = hlo_numel(h, zero) / plane;
  const int64_t flat[2] = {planes, hlo_numel(h, y) / planes}, column[2] = {hlo_numel(h, y), 1};
  at = hlo_reshape(h, hlo_convert(h, at, TTPU_I64), 2, flat);
  hlo_val_t base = hlo_iota(h, TTPU_I64, 2, flat, 0);
  base = nn_scale(h, base, (double)plane);
  at = hlo_reshape(h, hlo_add(h, at, base), 2, column);
  const hlo_val_t updates = hlo_flatten(h, y), target = hlo_flatten(h, zero);
  const int axis = 0;
  const hlo_scatter_t s = {.inserted_count = 1, .map_count = 1, .inserted_dims = &axis, .scatter_map = &axis};
  return hlo_reshape(h, hlo_scatter(h, op, target, at, updates, &s), rank, dims);
}

static void ret_max(hlo_t *h, const op_call_t *c, const ttpu_window_t *w, hlo_val_t x) {
  hlo_val_t value, index;
  window_max(h, w, x, op_result_wanted(c, 1), &value, &index);
  op_ret(h, c, 0, value);
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, index);
}

static bool ret_empty(hlo_t *h, const op_call_t *c) {
  if (ttpu_dims_numel(op_result_rank(c, 0), op_result_dims(c, 0)) != 0) return false;
  for (int k = 0; k < op_result_count(c); k++) nn_ret_full(h, c, k, 0);
  return true;
}

void op_emit_max_pool(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const ttpu_window_t w = read_window(c, 1, true, n, hlo_dims(h, x) + rank - n, op_result_dims(c, 0) + rank - n);
  ret_max(h, c, &w, x);
}

/* Adds dy to the input position that |at| names, tap by tap. */
static hlo_val_t gather_hits(hlo_t *h, const ttpu_window_t *w, hlo_val_t dy, hlo_val_t at) {
  at = hlo_convert(h, at, ttpu_window_index_type(w));
  hlo_val_t sum = 0;
  for (int64_t t = 0; t < ttpu_window_taps(w); t++) {
    const hlo_val_t here = hlo_expand_like(h, ttpu_window_index(h, w, t), at);
    const hlo_val_t part = ttpu_window_untap(h, w, nn_keep(h, hlo_eq(h, at, here), dy), t);
    sum = t ? hlo_add(h, sum, part) : part;
  }
  return sum;
}

void op_emit_max_pool_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0), at = op_tensor(h, c, 7);
  const int n = spatial_of(c), rank = hlo_rank(h, dy);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const int64_t *in = op_result_dims(c, 0);
  const ttpu_window_t w = read_window(c, 2, true, n, in + rank - n, hlo_dims(h, dy) + rank - n);
  op_ret(h, c, 0,
         ttpu_window_taps(&w) <= MAX_UNROLLED ? gather_hits(h, &w, dy, at)
                                              : scatter_planes(h, "add", dy, at, n, rank, in));
}

/* --- averages --------------------------------------------------------------------------------------------------- */

/* How many elements window o of dimension |d| averages over: [out]. */
static hlo_val_t line_count(hlo_t *h, const ttpu_window_t *w, int d, bool include_pad, ttpu_dtype_e dtype) {
  const hlo_val_t o = hlo_iota(h, TTPU_I64, 1, &w->out[d], 0), stride = hlo_const_int(h, TTPU_I64, w->stride[d]);
  hlo_val_t start = nn_plus(h, hlo_mul(h, o, stride), (double)-w->pad[d]);
  hlo_val_t end = nn_plus(h, start, (double)w->size[d]);
  end = hlo_min(h, end, hlo_like(h, end, (double)(w->in[d] + w->pad[d])));
  if (!include_pad) {
    start = hlo_max(h, start, hlo_like(h, start, 0));
    end = hlo_min(h, end, hlo_like(h, end, (double)w->in[d]));
  }
  return hlo_convert(h, hlo_sub(h, end, start), dtype);
}

/* Divides |y| (spatial dims out) by the size of its window. */
static hlo_val_t divide_by_size(hlo_t *h, const ttpu_window_t *w, hlo_val_t y, bool include_pad, int64_t override) {
  bool whole = true; /* no window hangs over */
  for (int d = 0; d < w->rank; d++) {
    const int64_t reach = (w->out[d] - 1) * w->stride[d] + w->size[d],
                  last = w->in[d] + w->pad[d] * (include_pad ? 2 : 1);
    whole = whole && reach <= last && (include_pad || w->pad[d] == 0);
  }
  if (override || whole) return nn_over(h, y, (double)(override ? override : ttpu_window_taps(w)));
  hlo_val_t size = 0;
  for (int d = 0; d < w->rank; d++) {
    const hlo_val_t line = line_count(h, w, d, include_pad, hlo_dtype(h, y));
    const hlo_val_t plane = hlo_broadcast_in(h, line, w->rank, w->out, &d);
    size = d ? hlo_mul(h, size, plane) : plane;
  }
  return hlo_div(h, y, size);
}

void op_emit_avg_pool(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const ttpu_window_t w = read_window(c, 1, false, n, hlo_dims(h, x) + rank - n, op_result_dims(c, 0) + rank - n);
  op_ret(h, c, 0, divide_by_size(h, &w, ttpu_window_sum(h, &w, x), op_bool(c, 5, true), op_int(c, 6, 0)));
}

void op_emit_avg_pool_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, dy);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const ttpu_window_t w = read_window(c, 2, false, n, op_result_dims(c, 0) + rank - n, hlo_dims(h, dy) + rank - n);
  op_ret(h, c, 0, ttpu_window_sum_back(h, &w, divide_by_size(h, &w, dy, op_bool(c, 6, true), op_int(c, 7, 0))));
}

/* Adaptive window o covers inputs floor(o * in / out) up to ceil((o + 1) * in / out). */
static int64_t adaptive_start(int64_t o, int64_t in, int64_t out) { return o * in / out; }
static int64_t adaptive_end(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

static int64_t adaptive_size(int64_t in, int64_t out) {
  int64_t most = 0;
  for (int64_t o = 0; o < out; o++) {
    const int64_t size = adaptive_end(o, in, out) - adaptive_start(o, in, out);
    if (size > most) most = size;
  }
  return most;
}

/* Tap |k| of each adaptive window along one dimension; past the window's end its last element again, which changes
 * neither maximum nor index. */
static hlo_val_t adaptive_tap(hlo_t *h, hlo_val_t x, int dim, int64_t in, int64_t out, int64_t k) {
  ttpu_linmap_t *at = ttpu_linmap_create(in, out, 1, false);
  for (int64_t o = 0; at && o < out; o++) {
    const int64_t start = adaptive_start(o, in, out), end = adaptive_end(o, in, out);
    at->index[o] = start + k < end ? start + k : end - 1;
  }
  const hlo_val_t y = ttpu_linmap_apply(h, at, x, dim);
  ttpu_linmap_free(at);
  return y;
}

static ttpu_linmap_t *adaptive_mean(int64_t in, int64_t out) {
  const int64_t taps = adaptive_size(in, out);
  ttpu_linmap_t *map = ttpu_linmap_create(in, out, taps, true);
  for (int64_t o = 0; map && o < out; o++) {
    const int64_t start = adaptive_start(o, in, out), size = adaptive_end(o, in, out) - start;
    for (int64_t k = 0; k < taps; k++) {
      map->index[o * taps + k] = start + (k < size ? k : size - 1);
      map->weight[o * taps + k] = k < size ? 1 / (double)size : 0;
    }
  }
  return map;
}

static hlo_val_t adaptive_lines(hlo_t *h, hlo_val_t x, int spatial, const int64_t *in, const int64_t *out, bool back) {
  const int rank = hlo_rank(h, x);
  for (int d = 0; d < spatial; d++) {
    if (in[d] == out[d]) continue;
    ttpu_linmap_t *map = adaptive_mean(in[d], out[d]);
    const int dim = rank - spatial + d;
    x = back ? ttpu_linmap_apply_back(h, map, x, dim) : ttpu_linmap_apply(h, map, x, dim);
    ttpu_linmap_free(map);
  }
  return x;
}

void op_emit_adaptive_avg_pool(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const int64_t *in = hlo_dims(h, x) + rank - n, *out = op_result_dims(c, 0) + rank - n;
  ttpu_window_t w;
  if (even_window(n, in, out, &w)) {
    op_ret(h, c, 0, nn_over(h, ttpu_window_sum(h, &w, x), (double)ttpu_window_taps(&w)));
  } else {
    op_ret(h, c, 0, adaptive_lines(h, x, n, in, out, false));
  }
}

void op_emit_adaptive_avg_pool_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, dy);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const int64_t *in = op_result_dims(c, 0) + rank - n, *out = hlo_dims(h, dy) + rank - n;
  ttpu_window_t w;
  if (even_window(n, in, out, &w)) {
    hlo_val_t dx = nn_over(h, dy, (double)ttpu_window_taps(&w));
    for (int d = 0; d < n; d++) /* each output repeats over its own block */
      dx = adaptive_tap(h, dx, rank - n + d, out[d], in[d], 0);
    op_ret(h, c, 0, dx);
  } else {
    op_ret(h, c, 0, adaptive_lines(h, dy, n, in, out, true));
  }
}

/* --- adaptive and fractional maxima: windows of uneven sizes --------------------------------------------------- */

typedef struct {
  hlo_val_t value, index;
} best_t;

/* One more candidate, in row-major order: a later one must be greater, or NaN. */
static void take_greater(hlo_t *h, best_t *best, hlo_val_t value, hlo_val_t index) {
  if (!best->value) {
    *best = (best_t){value, index};
    return;
  }
  hlo_val_t take = hlo_gt(h, value, best->value);
  if (ttpu_dtype_is_float(hlo_dtype(h, value))) take = hlo_or(h, take, hlo_is_nan(h, value));
  best->value = hlo_select(h, take, value, best->value);
  best->index = hlo_select(h, take, index, best->index);
}

void op_emit_adaptive_max_pool(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  const int64_t *in = hlo_dims(h, x) + rank - n, *out = op_result_dims(c, 0) + rank - n;
  ttpu_window_t w;
  if (even_window(n, in, out, &w)) {
    ret_max(h, c, &w, x);
    return;
  }
  w = (ttpu_window_t){.rank = n};
  for (int d = 0; d < n; d++) w.in[d] = in[d], w.out[d] = out[d], w.size[d] = adaptive_size(in[d], out[d]);
  const int64_t plane = ttpu_window_inputs(&w);
  const hlo_val_t flat = hlo_iota(h, ttpu_window_index_type(&w), 1, &plane, 0), positions = hlo_reshape(h, flat, n, in);
  best_t best = {0};
  hlo_val_t lines[WINDOW_MAX_RANK] = {0}, at[WINDOW_MAX_RANK] = {0};
  for (int64_t t = 0; t < ttpu_window_taps(&w); t++) {
    int64_t rest = t, pitch = ttpu_window_taps(&w);
    for (int d = 0; d < n; d++) { /* a dimension's selection changes only when the tap's coordinate there does */
      pitch /= w.size[d];
      const int64_t k = rest / pitch;
      rest %= pitch;
      if (t % pitch != 0) continue;
      lines[d] = adaptive_tap(h, d ? lines[d - 1] : x, rank - n + d, in[d], out[d], k);
      at[d] = adaptive_tap(h, d ? at[d - 1] : positions, d, in[d], out[d], k);
    }
    take_greater(h, &best, lines[n - 1], hlo_expand_like(h, at[n - 1], lines[n - 1]));
  }
  op_ret(h, c, 0, best.value);
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, best.index);
}

/* grad, self, ..., indices last: for windows known only by their indices. |arg| is the number of the indices. */
static void scatter_back(hlo_t *h, const op_call_t *c, int arg) {
  const hlo_val_t dy = nn_tensor(h, c, 0), at = op_tensor(h, c, arg);
  const int rank = op_result_rank(c, 0);
  if (!is_ready(h, rank, spatial_of(c), c) || ret_empty(h, c)) return;
  op_ret(h, c, 0, scatter_planes(h, "add", dy, at, spatial_of(c), rank, op_result_dims(c, 0)));
}

void op_emit_adaptive_max_pool_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0), at = op_tensor(h, c, 2);
  const int n = spatial_of(c), rank = hlo_rank(h, dy);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  ttpu_window_t w;
  if (even_window(n, op_result_dims(c, 0) + rank - n, hlo_dims(h, dy) + rank - n, &w) &&
      ttpu_window_taps(&w) <= MAX_UNROLLED)
    op_ret(h, c, 0, gather_hits(h, &w, dy, at));
  else
    scatter_back(h, c, 2);
}

void op_emit_fractional_max_pool_backward(hlo_t *h, const op_call_t *c) { scatter_back(h, c, 4); }

/* Where the windows of one dimension start: [planes, out]. |sample| is [planes]. */
static hlo_val_t fractional_starts(hlo_t *h, hlo_val_t sample, int64_t in, int64_t out, int64_t size,
                                   ttpu_dtype_e index) {
  const int64_t dims[2] = {hlo_dim(h, sample, 0), out};
  const int row = 0;
  const hlo_val_t o = hlo_iota(h, hlo_dtype(h, sample), 2, dims, 1);
  const double alpha = out > 1 ? (double)(in - size) / (double)(out - 1) : 0;
  const hlo_val_t s = hlo_broadcast_in(h, sample, 2, dims, &row);
  const hlo_val_t a = hlo_like(h, s, (double)(in - size)), b = hlo_like(h, s, out > 1 ? (double)(out - 1) : 1);
  const hlo_val_t step = out > 1 ? hlo_div(h, a, b) : hlo_like(h, s, alpha);
  hlo_val_t at = hlo_mul(h, hlo_add(h, o, s), step);
  at = hlo_convert(h, at, index);
  const hlo_val_t zero = hlo_convert(h, hlo_mul(h, s, step), index);
  at = hlo_sub(h, at, zero);
  const hlo_val_t is_last = hlo_eq(h, o, hlo_like(h, o, (double)(out - 1)));
  return hlo_select(h, is_last, hlo_like(h, at, (double)(in - size)), at);
}

void op_emit_fractional_max_pool(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  if (!is_ready(h, rank, n, c) || ret_empty(h, c)) return;
  ttpu_window_t w = {.rank = n};
  nn_ints(c, 1, n, 1, w.size);
  for (int d = 0; d < n; d++) w.in[d] = hlo_dim(h, x, rank - n + d), w.out[d] = op_result_dims(c, 0)[rank - n + d];
  const ttpu_dtype_e index = ttpu_window_index_type(&w);
  const int64_t plane = ttpu_window_inputs(&w), planes = hlo_numel(h, x) / plane, outputs = ttpu_window_outputs(&w);
  const int64_t flat[2] = {planes, plane}, rows[2] = {planes, n};
  int64_t grid[WINDOW_MAX_RANK + 1] = {planes};
  for (int d = 0; d < n; d++) grid[1 + d] = w.out[d];
  const hlo_val_t samples = hlo_reshape(h, nn_tensor(h, c, 3), 2, rows), lines = hlo_reshape(h, x, 2, flat);
  hlo_val_t base = 0; /* position of each window's first element: [planes, out...] */
  int64_t scale = plane, scales[WINDOW_MAX_RANK];
  for (int d = 0; d < n; d++) {
    scale /= w.in[d], scales[d] = scale;
    const int column = n == 2 ? 1 - d : d; /* two dimensions: the samples are width, height */
    const hlo_val_t sample = hlo_squeeze(h, hlo_slice_dim(h, samples, 1, column, column + 1, 1), 1);
    const hlo_val_t start =
        nn_scale(h, fractional_starts(h, sample, w.in[d], w.out[d], w.size[d], index), (double)scale);
    const int map[2] = {0, 1 + d};
    const hlo_val_t spread = hlo_broadcast_in(h, start, n + 1, grid, map);
    base = d ? hlo_add(h, base, spread) : spread;
  }
  const int64_t line[2] = {planes, outputs};
  base = hlo_reshape(h, base, 2, line);
  best_t best = {0};
  for (int64_t t = 0; t < ttpu_window_taps(&w); t++) {
    int64_t rest = t, offset = 0;
    for (int d = n - 1; d >= 0; d--) offset += rest % w.size[d] * scales[d], rest /= w.size[d];
    const hlo_val_t at = nn_plus(h, base, (double)offset);
    take_greater(h, &best, hlo_take_along(h, lines, at, 1), at);
  }
  op_ret(h, c, 0, hlo_reshape(h, best.value, rank, op_result_dims(c, 0)));
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, hlo_reshape(h, best.index, rank, op_result_dims(c, 1)));
}

void op_emit_max_unpool(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor(h, c, 0), at = op_tensor(h, c, 1);
  const int rank = op_result_rank(c, 0);
  if (!is_ready(h, rank, spatial_of(c), c) || ret_empty(h, c)) return;
  op_ret(h, c, 0, scatter_planes(h, "", x, at, spatial_of(c), rank, op_result_dims(c, 0)));
}
