#include "ops/window.h"

#include "ops/nn.h"

/* A window of more taps is left to reduce_window, whose program does not grow with it. */
enum { MAX_UNROLLED = 32 };

static int64_t product(int n, const int64_t *v) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= v[i];
  return p;
}

int64_t ttpu_window_taps(const ttpu_window_t *w) { return product(w->rank, w->size); }
int64_t ttpu_window_inputs(const ttpu_window_t *w) { return product(w->rank, w->in); }
int64_t ttpu_window_outputs(const ttpu_window_t *w) { return product(w->rank, w->out); }

/* The coordinates of tap |t|, row-major. */
static void split_tap(const ttpu_window_t *w, int64_t t, int64_t *out) {
  for (int d = w->rank - 1; d >= 0; d--) out[d] = t % w->size[d], t /= w->size[d];
}

static int64_t reach(const ttpu_window_t *w, int d) {
  return (w->out[d] - 1) * w->stride[d] + (w->size[d] - 1) * w->dilation[d] + 1;
}

static int64_t pad_high(const ttpu_window_t *w, int d) {
  const int64_t high = reach(w, d) - w->in[d] - w->pad[d];
  return high > 0 ? high : 0;
}

hlo_val_t ttpu_window_pad(hlo_t *h, const ttpu_window_t *w, hlo_val_t x, hlo_val_t value) {
  const int rank = hlo_rank(h, x);
  int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0}, total = 0;
  if (hlo_failed(h)) return 0;
  for (int d = 0; d < w->rank; d++) {
    low[rank - w->rank + d] = w->pad[d];
    high[rank - w->rank + d] = pad_high(w, d);
    total += w->pad[d] + pad_high(w, d);
  }
  return total ? hlo_pad(h, x, value, low, high, NULL) : x;
}

hlo_val_t ttpu_window_tap(hlo_t *h, const ttpu_window_t *w, hlo_val_t padded, int64_t t) {
  const int rank = hlo_rank(h, padded);
  int64_t start[TTPU_MAX_RANK], limit[TTPU_MAX_RANK], step[TTPU_MAX_RANK], at[WINDOW_MAX_RANK];
  if (hlo_failed(h)) return 0;
  split_tap(w, t, at);
  for (int i = 0; i < rank; i++) start[i] = 0, limit[i] = hlo_dim(h, padded, i), step[i] = 1;
  for (int d = 0; d < w->rank; d++) {
    const int i = rank - w->rank + d;
    start[i] = at[d] * w->dilation[d];
    limit[i] = start[i] + (w->out[d] - 1) * w->stride[d] + 1;
    step[i] = w->stride[d];
  }
  return hlo_slice(h, padded, start, limit, step);
}

hlo_val_t ttpu_window_untap(hlo_t *h, const ttpu_window_t *w, hlo_val_t y, int64_t t) {
  const int rank = hlo_rank(h, y);
  int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0}, inside[TTPU_MAX_RANK] = {0}, at[WINDOW_MAX_RANK];
  if (hlo_failed(h)) return 0;
  split_tap(w, t, at);
  for (int d = 0; d < w->rank; d++) {
    const int i = rank - w->rank + d;
    low[i] = at[d] * w->dilation[d] - w->pad[d];
    inside[i] = w->stride[d] - 1;
    high[i] = w->in[d] - low[i] - ((w->out[d] - 1) * w->stride[d] + 1);
  }
  return hlo_pad(h, y, hlo_like(h, y, 0), low, high, inside);
}

/* i32 halves the work of index arithmetic, and a TPU has no native i64. */
ttpu_dtype_e ttpu_window_index_type(const ttpu_window_t *w) {
  return ttpu_window_inputs(w) < (int64_t)1 << 28 ? TTPU_I32 : TTPU_I64;
}

int64_t ttpu_window_nowhere(const ttpu_window_t *w) {
  return (int64_t)1 << (ttpu_window_index_type(w) == TTPU_I32 ? 29 : 60);
}

/* One dimension: position times |scale|, or nowhere. Three nowheres still fit the type. */
static hlo_val_t line_index(hlo_t *h, const ttpu_window_t *w, int d, int64_t at, int64_t scale) {
  const ttpu_dtype_e type = ttpu_window_index_type(w);
  const int64_t first = at * w->dilation[d] - w->pad[d], last = first + (w->out[d] - 1) * w->stride[d];
  const hlo_val_t steps = hlo_iota(h, type, 1, &w->out[d], 0);
  const hlo_val_t pitch = hlo_const_int(h, type, w->stride[d] * scale);
  const hlo_val_t origin = hlo_const_int(h, type, first * scale);
  hlo_val_t i = hlo_mul(h, steps, pitch);
  i = hlo_add(h, i, origin);
  if (first >= 0 && last < w->in[d]) return i;
  const hlo_val_t below = hlo_lt(h, i, hlo_like(h, i, 0)), end = hlo_const_int(h, type, w->in[d] * scale);
  const hlo_val_t above = hlo_ge(h, i, end);
  const hlo_val_t outside = hlo_or(h, below, above);
  return hlo_select(h, outside, hlo_const_int(h, type, ttpu_window_nowhere(w)), i);
}

hlo_val_t ttpu_window_index(hlo_t *h, const ttpu_window_t *w, int64_t t) {
  int64_t at[WINDOW_MAX_RANK];
  split_tap(w, t, at);
  hlo_val_t sum = 0;
  int64_t scale = ttpu_window_inputs(w);
  for (int d = 0; d < w->rank; d++) {
    scale = w->in[d] ? scale / w->in[d] : 0;
    const hlo_val_t line = line_index(h, w, d, at[d], scale);
    const hlo_val_t plane = hlo_broadcast_in(h, line, w->rank, w->out, &d);
    sum = d ? hlo_add(h, sum, plane) : plane;
  }
  return sum;
}

/* Arrays of the operand's rank for hlo_reduce_window; leading dimensions have windows of one. */
typedef struct {
  int64_t size[TTPU_MAX_RANK], stride[TTPU_MAX_RANK], base[TTPU_MAX_RANK], dilation[TTPU_MAX_RANK], low[TTPU_MAX_RANK],
      high[TTPU_MAX_RANK];
} arrays_t;

static arrays_t unit_arrays(int rank) {
  arrays_t a = {0};
  for (int i = 0; i < rank; i++) a.size[i] = a.stride[i] = a.base[i] = a.dilation[i] = 1;
  return a;
}

hlo_val_t ttpu_window_sum(hlo_t *h, const ttpu_window_t *w, hlo_val_t x) {
  const hlo_val_t zero = hlo_like(h, x, 0);
  if (hlo_failed(h)) return 0;
  if (ttpu_window_taps(w) <= MAX_UNROLLED) {
    const hlo_val_t padded = ttpu_window_pad(h, w, x, zero);
    hlo_val_t sum = ttpu_window_tap(h, w, padded, 0);
    for (int64_t t = 1; t < ttpu_window_taps(w); t++) sum = hlo_add(h, sum, ttpu_window_tap(h, w, padded, t));
    return sum;
  }
  const int rank = hlo_rank(h, x);
  arrays_t a = unit_arrays(rank);
  hlo_val_t padded = ttpu_window_pad(h, w, x, zero);
  for (int d = 0; d < w->rank; d++) {
    const int i = rank - w->rank + d;
    a.size[i] = w->size[d], a.stride[i] = w->stride[d], a.dilation[i] = w->dilation[d];
    if (hlo_dim(h, padded, i) > reach(w, d)) padded = hlo_slice_dim(h, padded, i, 0, reach(w, d), 1);
  }
  return hlo_reduce_window(h, "add", padded, zero, a.size, a.stride, a.base, a.dilation, NULL, NULL);
}

hlo_val_t ttpu_window_sum_back(hlo_t *h, const ttpu_window_t *w, hlo_val_t y) {
  if (hlo_failed(h)) return 0;
  if (ttpu_window_taps(w) <= MAX_UNROLLED) {
    hlo_val_t sum = ttpu_window_untap(h, w, y, 0);
    for (int64_t t = 1; t < ttpu_window_taps(w); t++) sum = hlo_add(h, sum, ttpu_window_untap(h, w, y, t));
    return sum;
  }
  const int rank = hlo_rank(h, y);
  arrays_t a = unit_arrays(rank);
  int64_t drop[WINDOW_MAX_RANK];
  for (int d = 0; d < w->rank; d++) {
    const int i = rank - w->rank + d;
    const int64_t spread = (w->out[d] - 1) * w->stride[d] + 1, edge = w->size[d] - 1;
    const int64_t need = w->in[d] + w->pad[d]; /* all positions up to the last input, padding in front included */
    a.size[i] = w->size[d], a.base[i] = w->stride[d];
    a.low[i] = edge, drop[d] = w->pad[d];
    a.high[i] = need - spread > 0 ? need - spread : 0;
  }
  hlo_val_t x = hlo_reduce_window(h, "add", y, hlo_like(h, y, 0), a.size, a.stride, a.base, a.dilation, a.low, a.high);
  for (int d = 0; d < w->rank; d++) x = hlo_slice_dim(h, x, rank - w->rank + d, drop[d], drop[d] + w->in[d], 1);
  return x;
}
