/* grid.c: grid_sampler in two and three dimensions and its gradient.
 *
 * Each spatial dimension gives every sample a few taps: a position, whether it lies inside, a weight and the weight's
 * slope. A sample sums the products over all combinations. Images are read and written as rows of channels, one gather
 * or scatter of rows a combination.
 */
#include "ops/nn.h"

enum {
  MODE_LINEAR = 0,
  MODE_NEAREST = 1,
  MODE_CUBIC = 2,
  PAD_ZEROS = 0,
  PAD_BORDER = 1,
  PAD_REFLECT = 2,
  MAX_DIMS = 3,
  MAX_TAPS = 4
};

typedef struct {
  hlo_val_t at, inside, weight, slope; /* [batch * samples]: i64 (clamped), i1, float, float; slope 0: not wanted */
} tap_t;

typedef struct {
  int spatial, taps;
  int64_t batch, channels, samples, size[MAX_DIMS];
  int64_t mode, padding;
  bool align, wants_slope;
  ttpu_dtype_e type;
  hlo_val_t rows; /* the image: [batch * positions, channels] */
  tap_t tap[MAX_DIMS][MAX_TAPS];
  hlo_val_t stretch[MAX_DIMS]; /* derivative of a position in its grid coordinate */
} grid_t;

/* --- coordinates -------------------------------------------------------------------------------------------------- */

/* From [-1, 1] to positions in a line of |size|. */
static hlo_val_t to_position(hlo_t *h, const grid_t *g, hlo_val_t x, int64_t size) {
  if (g->align) return nn_scale(h, nn_plus(h, x, 1), (double)(size - 1) / 2);
  return nn_scale(h, nn_plus(h, nn_scale(h, nn_plus(h, x, 1), (double)size), -1), 0.5);
}

/* Clamped to the line; *slope is multiplied by 0 where that changed something (PyTorch counts the ends as changed). */
static hlo_val_t clip(hlo_t *h, hlo_val_t x, int64_t size, hlo_val_t *slope) {
  const hlo_val_t zero = hlo_like(h, x, 0), last = hlo_like(h, x, (double)(size - 1));
  if (slope) {
    const hlo_val_t above = hlo_gt(h, x, zero), below = hlo_lt(h, x, last);
    *slope = nn_keep(h, hlo_and(h, above, below), *slope);
  }
  return hlo_min(h, hlo_max(h, x, zero), last);
}

/* Mirrored at |low| / 2 and |high| / 2 until it lies between. */
static hlo_val_t reflect(hlo_t *h, hlo_val_t x, int64_t low, int64_t high, hlo_val_t *slope) {
  if (low == high) {
    if (slope) *slope = hlo_full_like(h, *slope, 0);
    return hlo_full_like(h, x, 0);
  }
  const double from = (double)low / 2, span = (double)(high - low) / 2;
  const hlo_val_t away = nn_plus(h, x, -from), size = hlo_abs(h, away), width = hlo_like(h, size, span);
  const hlo_val_t extra = hlo_rem(h, size, width), turns = hlo_floor(h, hlo_div(h, size, width));
  const hlo_val_t even = hlo_eq(h, hlo_rem(h, turns, hlo_like(h, turns, 2)), hlo_like(h, turns, 0));
  if (slope) {
    const hlo_val_t negative = hlo_lt(h, away, hlo_like(h, away, 0)), flips = hlo_eq(h, negative, even);
    *slope = hlo_select(h, flips, hlo_neg(h, *slope), *slope);
  }
  return nn_plus(h, hlo_select(h, even, extra, nn_from(h, span, extra)), from);
}

static hlo_val_t keep_inside(hlo_t *h, const grid_t *g, hlo_val_t x, int64_t size, hlo_val_t *slope) {
  if (g->padding == PAD_ZEROS) return x;
  if (g->padding == PAD_REFLECT)
    x = g->align ? reflect(h, x, 0, 2 * (size - 1), slope) : reflect(h, x, -1, 2 * size - 1, slope);
  return clip(h, x, size, slope);
}

/* A whole-numbered position as an index, and whether it lies inside. */
static void locate(hlo_t *h, hlo_val_t x, int64_t size, tap_t *t) {
  const hlo_val_t first = hlo_ge(h, x, hlo_like(h, x, 0)), last = hlo_le(h, x, hlo_like(h, x, (double)(size - 1)));
  t->inside = hlo_and(h, first, last);
  t->at = hlo_convert(h, nn_keep(h, t->inside, x), TTPU_I64);
}

/* Cubic convolution with a = -0.75 at distance |x| in [0, 2] (|far|: in [1, 2]), or its derivative. */
static hlo_val_t cubic(hlo_t *h, hlo_val_t x, bool far, bool derivative) {
  static const double near_terms[4] = {1, 0, -2.25, 1.25}, far_terms[4] = {3, -6, 3.75, -0.75};
  const double *t = far ? far_terms : near_terms;
  const double c[4] = {derivative ? t[1] : t[0], derivative ? 2 * t[2] : t[1], derivative ? 3 * t[3] : t[2],
                       derivative ? 0 : t[3]};
  hlo_val_t y = hlo_full_like(h, x, c[3]);
  for (int i = 2; i >= 0; i--) y = nn_plus(h, hlo_mul(h, y, x), c[i]);
  return y;
}

/* Fills the taps of dimension |d| from its grid coordinate |x| [batch * samples]. */
static void line_taps(hlo_t *h, grid_t *g, int d, hlo_val_t x) {
  const int64_t size = g->size[d];
  tap_t *t = g->tap[d];
  hlo_val_t at = to_position(h, g, x, size);
  hlo_val_t *slope = NULL;
  if (g->wants_slope) {
    g->stretch[d] = hlo_full_like(h, at, (double)(g->align ? size - 1 : size) / 2);
    slope = &g->stretch[d];
  }
  if (g->mode == MODE_CUBIC) {
    const hlo_val_t base = hlo_floor(h, at), part = hlo_sub(h, at, base);
    for (int k = 0; k < 4; k++) {
      const bool far = k == 0 || k == 3, right = k > 1; /* distances part + 1, part, 1 - part, 2 - part */
      const hlo_val_t distance = right ? nn_from(h, k - 1, part) : nn_plus(h, part, 1 - k);
      t[k].weight = cubic(h, distance, far, false);
      if (g->wants_slope) {
        const hlo_val_t s = cubic(h, distance, far, true);
        t[k].slope = right ? hlo_neg(h, s) : s;
      }
      locate(h, keep_inside(h, g, nn_plus(h, base, k - 1), size, NULL), size, &t[k]);
    }
    return;
  }
  at = keep_inside(h, g, at, size, slope);
  if (g->mode == MODE_NEAREST) {
    locate(h, hlo_round(h, at), size, &t[0]);
    t[0].weight = hlo_full_like(h, at, 1);
    return;
  }
  const hlo_val_t base = hlo_floor(h, at), part = hlo_sub(h, at, base);
  locate(h, base, size, &t[0]);
  locate(h, nn_plus(h, base, 1), size, &t[1]);
  t[0].weight = nn_from(h, 1, part), t[1].weight = part;
  if (g->wants_slope) t[0].slope = hlo_full_like(h, part, -1), t[1].slope = hlo_full_like(h, part, 1);
}

/* --- images as rows of channels ----------------------------------------------------------------------------------- */

/* [batch, channels, positions...] as [batch * positions, channels]. */
static hlo_val_t to_rows(hlo_t *h, hlo_val_t x, int64_t batch, int64_t channels) {
  const int64_t lines = batch * channels, positions = lines ? hlo_numel(h, x) / lines : 0;
  const int64_t flat[3] = {batch, channels, positions}, rows[2] = {batch * positions, channels};
  return hlo_reshape(h, hlo_swap(h, hlo_reshape(h, x, 3, flat), 1, 2), 2, rows);
}

static hlo_val_t from_rows(hlo_t *h, hlo_val_t rows, int64_t batch, int64_t channels, int rank, const int64_t *dims) {
  const int64_t split[3] = {batch, batch ? hlo_dim(h, rows, 0) / batch : 0, channels};
  return hlo_reshape(h, hlo_swap(h, hlo_reshape(h, rows, 3, split), 1, 2), rank, dims);
}

/* input, grid, mode, padding and alignment, from argument |first| on. */
static bool read_grid(hlo_t *h, const op_call_t *c, int first, bool wants_slope, grid_t *g) {
  const hlo_val_t x = nn_tensor(h, c, first);
  const int spatial = hlo_rank(h, x) - 2;
  if (hlo_failed(h)) return false;
  if (spatial < 2 || spatial > MAX_DIMS) {
    hlo_fail(h, "%s: the input must have 4 or 5 dimensions, got %d", op_name(c), spatial + 2);
    return false;
  }
  const hlo_val_t grid = op_tensor_as(h, c, first + 1, hlo_dtype(h, x));
  *g = (grid_t){.spatial = spatial,
                .batch = hlo_dim(h, x, 0),
                .channels = hlo_dim(h, x, 1),
                .mode = op_int(c, first + 2, 0),
                .padding = op_int(c, first + 3, 0),
                .align = op_bool(c, first + 4, false),
                .wants_slope = wants_slope,
                .type = hlo_dtype(h, x)};
  g->samples = g->batch ? hlo_numel(h, grid) / (g->batch * spatial) : 0;
  g->taps = g->mode == MODE_NEAREST ? 1 : g->mode == MODE_LINEAR ? 2 : 4;
  for (int d = 0; d < spatial; d++) g->size[d] = hlo_dim(h, x, 2 + d);
  g->rows = to_rows(h, x, g->batch, g->channels);
  const int64_t points[2] = {g->batch * g->samples, spatial};
  const hlo_val_t flat = hlo_reshape(h, grid, 2, points);
  for (int d = 0; d < spatial; d++) { /* the grid's last dimension is (x, y, z): the image's dimensions reversed */
    const int column = spatial - 1 - d;
    line_taps(h, g, d, hlo_squeeze(h, hlo_slice_dim(h, flat, 1, column, column + 1, 1), 1));
  }
  return !hlo_failed(h);
}

/* One combination of taps: the row to read, its weight with 0 outside, and that weight's derivatives in each position.
 */
typedef struct {
  hlo_val_t row, weight, slope[MAX_DIMS];
} corner_t;

static corner_t corner_of(hlo_t *h, const grid_t *g, int combination) {
  int k[MAX_DIMS];
  for (int d = g->spatial - 1; d >= 0; d--) k[d] = combination % g->taps, combination /= g->taps;
  const int64_t points = g->batch * g->samples, pair[2] = {g->batch, g->samples};
  corner_t r = {0};
  hlo_val_t inside = 0, image = hlo_reshape(h, hlo_iota(h, TTPU_I64, 2, pair, 0), 1, &points);
  for (int d = 0; d < g->spatial; d++) {
    const tap_t *t = &g->tap[d][k[d]];
    image = hlo_add(h, nn_scale(h, image, (double)g->size[d]), t->at);
    inside = inside ? hlo_and(h, inside, t->inside) : t->inside;
    r.weight = r.weight ? hlo_mul(h, r.weight, t->weight) : t->weight;
  }
  r.row = image;
  r.weight = nn_keep(h, inside, r.weight);
  for (int d = 0; d < g->spatial && g->wants_slope && g->mode != MODE_NEAREST; d++) {
    hlo_val_t s = g->tap[d][k[d]].slope;
    for (int e = 0; e < g->spatial; e++)
      if (e != d) s = hlo_mul(h, s, g->tap[e][k[e]].weight);
    r.slope[d] = nn_keep(h, inside, s);
  }
  return r;
}

static int corner_count(const grid_t *g) {
  int n = 1;
  for (int d = 0; d < g->spatial; d++) n *= g->taps;
  return n;
}

/* input, grid, interpolation_mode, padding_mode, align_corners */
void op_emit_grid_sample(hlo_t *h, const op_call_t *c) {
  grid_t g;
  if (ttpu_dims_numel(op_result_rank(c, 0), op_result_dims(c, 0)) == 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  if (!read_grid(h, c, 0, false, &g)) return;
  hlo_val_t sum = 0;
  for (int i = 0; i < corner_count(&g); i++) {
    const corner_t k = corner_of(h, &g, i);
    hlo_val_t part = hlo_index_select(h, g.rows, k.row, 0);
    part = hlo_mul(h, part, nn_along(h, k.weight, part, 0));
    sum = i ? hlo_add(h, sum, part) : part;
  }
  op_ret(h, c, 0, from_rows(h, sum, g.batch, g.channels, op_result_rank(c, 0), op_result_dims(c, 0)));
}

/* grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask -> grad_input, grad_grid */
void op_emit_grid_sample_backward(hlo_t *h, const op_call_t *c) {
  grid_t g;
  const bool wants_image = op_result_wanted(c, 0), wants_grid = op_result_wanted(c, 1);
  const hlo_val_t grad = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  if (hlo_numel(h, grad) == 0) {
    for (int k = 0; k < 2; k++)
      if (op_result_wanted(c, k)) nn_ret_full(h, c, k, 0);
    return;
  }
  if (!read_grid(h, c, 1, wants_grid, &g)) return;
  const hlo_val_t dy = to_rows(h, grad, g.batch, g.channels);
  hlo_val_t image = hlo_full_like(h, g.rows, 0), slope[MAX_DIMS] = {0};
  const int axis = 0, window = 1;
  const hlo_scatter_t s = {.window_count = 1,
                           .inserted_count = 1,
                           .map_count = 1,
                           .window_dims = &window,
                           .inserted_dims = &axis,
                           .scatter_map = &axis};
  for (int i = 0; i < corner_count(&g); i++) {
    const corner_t k = corner_of(h, &g, i);
    if (wants_image) {
      const hlo_val_t part = hlo_mul(h, dy, nn_along(h, k.weight, dy, 0));
      image = hlo_scatter(h, "add", image, hlo_unsqueeze(h, k.row, 1), part, &s);
    }
    if (!wants_grid || g.mode == MODE_NEAREST) continue;
    const hlo_val_t read = hlo_index_select(h, g.rows, k.row, 0),
                    along = hlo_reduce_dim(h, "add", hlo_mul(h, read, dy), 1);
    for (int d = 0; d < g.spatial; d++) {
      const hlo_val_t part = hlo_mul(h, along, k.slope[d]);
      slope[d] = i ? hlo_add(h, slope[d], part) : part;
    }
  }
  if (wants_image)
    op_ret(h, c, 0, from_rows(h, image, g.batch, g.channels, op_result_rank(c, 0), op_result_dims(c, 0)));
  if (!wants_grid) return;
  if (g.mode == MODE_NEAREST) {
    nn_ret_full(h, c, 1, 0);
    return;
  }
  hlo_val_t columns[MAX_DIMS];
  for (int d = 0; d < g.spatial; d++)
    columns[g.spatial - 1 - d] = hlo_unsqueeze(h, hlo_mul(h, slope[d], g.stretch[d]), 1);
  op_ret(h, c, 1, hlo_reshape(h, hlo_concat(h, g.spatial, columns, 1), op_result_rank(c, 1), op_result_dims(c, 1)));
}
