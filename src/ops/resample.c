/* resample.c: interpolation in all modes, reflecting and replicating pads, im2col and col2im, channel shuffle.
 *
 * Interpolation and padding are one sparse linear map a spatial dimension (linmap.h); gradients are the transposed
 * maps. Source positions are computed in the type CPU PyTorch uses (float, double for doubles), since a floor decides.
 * Detail: the mode's word and the number of spatial dimensions, "linear 2".
 */
#include <math.h>
#include <string.h>

#include "ops/linmap.h"
#include "ops/nn.h"
#include "ops/window.h"

static int spatial_of(const op_call_t *c) {
  const char *d = op_detail(c);
  return d[strlen(d) - 1] - '0';
}
static bool is_mode(const op_call_t *c, const char *word) { return strncmp(op_detail(c), word, strlen(word)) == 0; }

/* --- interpolation maps ------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t in, out;
  double given;            /* the scale factor argument, 0 when absent */
  bool align, exact, wide; /* wide: positions in double */
} line_t;

static double narrow(const line_t *l, double x) { return l->wide ? x : (double)(float)x; }

static double step_of(const line_t *l) {
  if (l->align) return l->out > 1 ? narrow(l, narrow(l, (double)(l->in - 1)) / (double)(l->out - 1)) : 0;
  return l->given > 0 ? narrow(l, 1 / l->given) : narrow(l, narrow(l, (double)l->in) / (double)l->out);
}

static double source_of(const line_t *l, double step, int64_t o, bool cubic) {
  if (l->align) return narrow(l, step * (double)o);
  const double x = narrow(l, narrow(l, step * ((double)o + 0.5)) - 0.5);
  return x < 0 && !cubic ? 0 : x;
}

static int64_t clamp(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

static ttpu_linmap_t *nearest_map(const line_t *l) {
  ttpu_linmap_t *map = ttpu_linmap_create(l->in, l->out, 1, false);
  const double step = step_of(l);
  for (int64_t o = 0; map && o < l->out; o++) {
    if (!l->exact && l->out == l->in)
      map->index[o] = o;
    else if (!l->exact && l->out == 2 * l->in)
      map->index[o] = o / 2;
    else
      map->index[o] = clamp((int64_t)floor(narrow(l, ((double)o + (l->exact ? 0.5 : 0)) * step)), l->in);
  }
  return map;
}

static ttpu_linmap_t *linear_map(const line_t *l) {
  ttpu_linmap_t *map = ttpu_linmap_create(l->in, l->out, 2, true);
  const double step = step_of(l);
  for (int64_t o = 0; map && o < l->out; o++) {
    const double x = l->in == l->out ? (double)o : source_of(l, step, o, false);
    const int64_t low = clamp((int64_t)floor(x), l->in);
    double part = narrow(l, x - (double)low);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    map->index[2 * o] = low, map->index[2 * o + 1] = clamp(low + 1, l->in);
    map->weight[2 * o] = narrow(l, 1 - part), map->weight[2 * o + 1] = part;
  }
  return map;
}

/* Cubic convolution of parameter |a| at distance |x|. */
static double cubic_weight(double x, double a) {
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static ttpu_linmap_t *cubic_map(const line_t *l) {
  ttpu_linmap_t *map = ttpu_linmap_create(l->in, l->out, 4, true);
  const double step = step_of(l);
  for (int64_t o = 0; map && o < l->out; o++) {
    const double x = source_of(l, step, o, true);
    int64_t low = (int64_t)floor(x);
    if (low > l->in - 1) low = l->in - 1;
    double part = narrow(l, x - (double)low);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    for (int k = 0; k < 4; k++) {
      map->index[4 * o + k] = clamp(low - 1 + k, l->in);
      map->weight[4 * o + k] = narrow(l, cubic_weight(part + 1 - k, -0.75));
    }
  }
  return map;
}

static double sinc(double x) { return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x); }

/* Filters of antialiased modes; |reach| is half their support in input elements of a scale of 1. */
static double filter_weight(int reach, double x) {
  if (reach == 1) return fabs(x) < 1 ? 1 - fabs(x) : 0;
  if (reach == 2) return cubic_weight(x, -0.5);
  return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static ttpu_linmap_t *antialias_map(const line_t *l, int reach) {
  const double step = step_of(l), stretch = step >= 1 ? step : 1, support = narrow(l, reach * stretch);
  const int64_t taps = (int64_t)ceil(support) * 2 + 1;
  ttpu_linmap_t *map = ttpu_linmap_create(l->in, l->out, taps, true);
  for (int64_t o = 0; map && o < l->out; o++) {
    const double centre = narrow(l, step * ((double)o + 0.5));
    int64_t first = (int64_t)narrow(l, centre - support + 0.5), end = (int64_t)narrow(l, centre + support + 0.5);
    if (first < 0) first = 0;
    if (end > l->in) end = l->in;
    int64_t size = end - first;
    size = size < 0 ? 0 : size > taps ? taps : size;
    double total = 0;
    for (int64_t k = 0; k < taps; k++) {
      map->index[o * taps + k] = clamp(k < size ? first + k : first + size - 1, l->in);
      const double w = k < size ? narrow(l, filter_weight(reach, ((double)(k + first) - centre + 0.5) / stretch)) : 0;
      map->weight[o * taps + k] = w;
      total += w;
    }
    for (int64_t k = 0; k < taps && total != 0; k++) map->weight[o * taps + k] /= total;
  }
  return map;
}

static ttpu_linmap_t *line_map(const op_call_t *c, const line_t *l) {
  if (is_mode(c, "linear_aa")) return antialias_map(l, 1);
  if (is_mode(c, "cubic_aa")) return antialias_map(l, 2);
  if (is_mode(c, "lanczos_aa")) return antialias_map(l, 3);
  if (is_mode(c, "linear")) return linear_map(l);
  return is_mode(c, "cubic") ? cubic_map(l) : nearest_map(l);
}

/* Integer images are interpolated in f32; each dimension's result is rounded to the nearest value that fits. */
static hlo_val_t to_image(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  if (!ttpu_dtype_is_int(dtype) || !ttpu_dtype_is_float(hlo_dtype(h, x))) return x;
  const hlo_val_t low = hlo_convert(h, hlo_lowest(h, dtype), hlo_dtype(h, x)),
                  high = hlo_convert(h, hlo_highest(h, dtype), hlo_dtype(h, x));
  const hlo_val_t whole = hlo_max(h, hlo_floor(h, nn_plus(h, x, 0.5)), low);
  return hlo_min(h, whole, high);
}

/* Maps the spatial dimensions of |x| from |in| to |out|, or back. |first|: number of the align_corners or scale
 * argument. */
static hlo_val_t interpolate(hlo_t *h, const op_call_t *c, hlo_val_t x, int first, const int64_t *in,
                             const int64_t *out, bool back) {
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  const bool has_align = !is_mode(c, "nearest") && !is_mode(c, "exact");
  for (int d = n - 1; d >= 0; d--) {
    const line_t l = {.in = in[d],
                      .out = out[d],
                      .given = op_number(h, c, first + has_align + d, 0),
                      .align = has_align && op_bool(c, first, false),
                      .exact = is_mode(c, "exact"),
                      .wide = hlo_dtype(h, x) == TTPU_F64};
    ttpu_linmap_t *map = line_map(c, &l);
    const int dim = rank - n + d;
    x = back ? ttpu_linmap_apply_back(h, map, x, dim)
             : to_image(h, ttpu_linmap_apply(h, map, x, dim), op_result_dtype(c, 0));
    ttpu_linmap_free(map);
  }
  return x;
}

/* self, output_size, [align_corners], scales... */
void op_emit_upsample(hlo_t *h, const op_call_t *c) {
  hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const bool moves_only = is_mode(c, "nearest") || is_mode(c, "exact");
  if (!moves_only) x = ttpu_dtype_is_int(hlo_dtype(h, x)) ? hlo_convert(h, x, TTPU_F32) : nn_up(h, x);
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  op_ret(h, c, 0, interpolate(h, c, x, 2, hlo_dims(h, x) + rank - n, op_result_dims(c, 0) + rank - n, false));
}

/* grad_output, output_size, input_size, [align_corners], scales... */
void op_emit_upsample_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int n = spatial_of(c), rank = hlo_rank(h, dy);
  op_ret(h, c, 0, interpolate(h, c, dy, 3, op_result_dims(c, 0) + rank - n, hlo_dims(h, dy) + rank - n, true));
}

/* --- pads --------------------------------------------------------------------------------------------------------- */

static ttpu_linmap_t *pad_map(bool reflects, int64_t in, int64_t out, int64_t before) {
  ttpu_linmap_t *map = ttpu_linmap_create(in, out, 1, false);
  for (int64_t o = 0; map && o < out; o++) {
    int64_t i = o - before;
    if (reflects) i = i < 0 ? -i : i >= in ? 2 * (in - 1) - i : i;
    map->index[o] = clamp(i, in);
  }
  return map;
}

static hlo_val_t pad_lines(hlo_t *h, const op_call_t *c, hlo_val_t x, int arg, const int64_t *in, const int64_t *out,
                           bool back) {
  const int n = spatial_of(c), rank = hlo_rank(h, x);
  const int64_t *pad = NULL;
  if (op_ints(c, arg, &pad) < 2 * n) return hlo_fail(h, "%s: expected %d padding sizes", op_name(c), 2 * n);
  for (int d = 0; d < n; d++) {
    ttpu_linmap_t *map = pad_map(is_mode(c, "reflect"), in[d], out[d], pad[2 * (n - 1 - d)]);
    x = back ? ttpu_linmap_apply_back(h, map, x, rank - n + d) : ttpu_linmap_apply(h, map, x, rank - n + d);
    ttpu_linmap_free(map);
  }
  return x;
}

void op_emit_edge_pad(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int skip = hlo_rank(h, x) - spatial_of(c);
  op_ret(h, c, 0, pad_lines(h, c, x, 1, hlo_dims(h, x) + skip, op_result_dims(c, 0) + skip, false));
}

/* grad_output, self, padding */
void op_emit_edge_pad_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int skip = hlo_rank(h, dy) - spatial_of(c);
  op_ret(h, c, 0, pad_lines(h, c, dy, 2, op_result_dims(c, 0) + skip, hlo_dims(h, dy) + skip, true));
}

/* --- sliding blocks ----------------------------------------------------------------------------------------------- */

/* Window of kernel, dilation, padding, stride from argument |first| on, over an image of |in|. */
static ttpu_window_t read_blocks(const op_call_t *c, int first, const int64_t *in) {
  ttpu_window_t w = {.rank = 2};
  nn_ints(c, first, 2, 1, w.size);
  nn_ints(c, first + 1, 2, 1, w.dilation);
  nn_ints(c, first + 2, 2, 0, w.pad);
  nn_ints(c, first + 3, 2, 1, w.stride);
  for (int d = 0; d < 2; d++) {
    w.in[d] = in[d];
    w.out[d] = (in[d] + 2 * w.pad[d] - w.dilation[d] * (w.size[d] - 1) - 1) / w.stride[d] + 1;
  }
  return w;
}

/* Taps side by side as dimension 2 of [batch, channels, taps, out...], joined pairwise so that any number will do. */
static hlo_val_t all_taps(hlo_t *h, const ttpu_window_t *w, hlo_val_t padded, int64_t from, int64_t to) {
  if (to - from == 1) return hlo_unsqueeze(h, ttpu_window_tap(h, w, padded, from), 2);
  hlo_val_t parts[8];
  int count = 0;
  const int64_t step = (to - from + 7) / 8;
  for (int64_t t = from; t < to; t += step) parts[count++] = all_taps(h, w, padded, t, t + step < to ? t + step : to);
  return count == 1 ? parts[0] : hlo_concat(h, count, parts, 2);
}

/* self, kernel_size, dilation, padding, stride */
void op_emit_im2col(hlo_t *h, const op_call_t *c) {
  hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  if (ttpu_dims_numel(op_result_rank(c, 0), op_result_dims(c, 0)) == 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  if (hlo_rank(h, x) == 3) x = hlo_unsqueeze(h, x, 0);
  const ttpu_window_t w = read_blocks(c, 1, hlo_dims(h, x) + 2);
  const hlo_val_t padded = ttpu_window_pad(h, &w, x, hlo_like(h, x, 0));
  op_ret(h, c, 0,
         hlo_reshape(h, all_taps(h, &w, padded, 0, ttpu_window_taps(&w)), op_result_rank(c, 0), op_result_dims(c, 0)));
}

/* self, output_size, kernel_size, dilation, padding, stride */
void op_emit_col2im(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int rank = op_result_rank(c, 0);
  const int64_t *image = op_result_dims(c, 0);
  if (hlo_numel(h, x) == 0 || ttpu_dims_numel(rank, image) == 0) {
    nn_ret_full(h, c, 0, 0);
    return;
  }
  const ttpu_window_t w = read_blocks(c, 2, image + rank - 2);
  const int64_t dims[5] = {rank == 4 ? image[0] : 1, image[rank - 3], ttpu_window_taps(&w), w.out[0], w.out[1]};
  const hlo_val_t blocks = hlo_reshape(h, x, 5, dims);
  hlo_val_t sum = 0;
  for (int64_t t = 0; t < dims[2]; t++) {
    const hlo_val_t tap = hlo_squeeze(h, hlo_slice_dim(h, blocks, 2, t, t + 1, 1), 2),
                    part = ttpu_window_untap(h, &w, tap, t);
    sum = t ? hlo_add(h, sum, part) : part;
  }
  op_ret(h, c, 0, hlo_reshape(h, sum, rank, image));
}

/* self, groups: channels of [groups, each] order to [each, groups] order */
void op_emit_channel_shuffle(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int64_t groups = op_int(c, 1, 1);
  int64_t dims[TTPU_MAX_RANK + 1];
  const int rank = hlo_rank(h, x);
  for (int i = 0; i < rank; i++) dims[i + (i > 1)] = hlo_dim(h, x, i);
  dims[1] = groups, dims[2] = hlo_dim(h, x, 1) / groups;
  const hlo_val_t split = hlo_swap(h, hlo_reshape(h, x, rank + 1, dims), 1, 2);
  op_ret(h, c, 0, hlo_reshape(h, split, rank, hlo_dims(h, x)));
}
