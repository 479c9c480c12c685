/* conv.c: convolution and transposed convolution of 1 to 3 spatial dimensions, and their gradients.
 *
 * All cases are three linear maps of one geometry: the correlation itself, its adjoint in the input (which is also the
 * forward of a transposed convolution) and its adjoint in the kernel. StableHLO would allow negative padding; a backend
 * may then leave its fast path, so surplus is computed and cropped instead. Kernels are reversed by an op of their own
 * and not by window reversal for the same reason.
 */
#include <string.h>

#include "ops/nn.h"

enum { MAX_SPATIAL = 3 };

typedef struct {
  int spatial;
  int64_t stride[MAX_SPATIAL], pad[MAX_SPATIAL], dilation[MAX_SPATIAL];
  int64_t groups;
} geometry_t;

static int64_t at_least_zero(int64_t n) { return n > 0 ? n : 0; }

/* Dimension numbers text for |spatial| dimensions: "[b, f, 0, 1]" with |first| and |second| for b and f. */
static void layout(char *out, size_t size, int spatial, char first, char second) {
  size_t n = 0;
  out[n++] = '[', out[n++] = first, out[n++] = ',', out[n++] = ' ', out[n++] = second;
  for (int d = 0; d < spatial && n + 6 < size; d++) out[n++] = ',', out[n++] = ' ', out[n++] = (char)('0' + d);
  out[n++] = ']', out[n] = 0;
}

typedef struct {
  char text[96];
} numbers_t;

static numbers_t dimension_numbers(int spatial, const char *roles) {
  numbers_t n;
  char lhs[24], rhs[24], out[24];
  layout(lhs, sizeof lhs, spatial, roles[0], roles[1]);
  layout(rhs, sizeof rhs, spatial, roles[2], roles[3]);
  layout(out, sizeof out, spatial, roles[4], roles[5]);
  size_t at = 0;
  const char *parts[] = {lhs, "x", rhs, "->", out};
  for (int i = 0; i < 5; i++) {
    const size_t len = strlen(parts[i]);
    memcpy(n.text + at, parts[i], len);
    at += len;
  }
  n.text[at] = 0;
  return n;
}

/* The first |size[d]| positions of each spatial dimension. */
static hlo_val_t crop(hlo_t *h, hlo_val_t x, int spatial, const int64_t *start, const int64_t *size) {
  for (int d = 0; d < spatial; d++) {
    const int64_t low = start ? start[d] : 0;
    if (low != 0 || hlo_dim(h, x, 2 + d) != size[d]) x = hlo_slice_dim(h, x, 2 + d, low, low + size[d], 1);
  }
  return x;
}

static bool is_empty(hlo_t *h, hlo_val_t a, hlo_val_t b) { return hlo_numel(h, a) == 0 || hlo_numel(h, b) == 0; }

/* y[n,o,p] = sum over i,k of x[n, i, p*stride + k*dilation - pad] * w[o,i,k]. There may be more positions p than |dims|
 * asks for: an output padding of a whole stride or more adds some to the gradient of a transposed convolution. */
static hlo_val_t correlate(hlo_t *h, hlo_val_t x, hlo_val_t w, const geometry_t *g, int rank, const int64_t *dims) {
  if (is_empty(h, x, w)) return hlo_full(h, hlo_dtype(h, x), rank, dims, 0);
  const hlo_conv_t conv = {.spatial = g->spatial,
                           .stride = g->stride,
                           .pad_low = g->pad,
                           .pad_high = g->pad,
                           .rhs_dilation = g->dilation,
                           .feature_groups = g->groups};
  return crop(h, hlo_convolution(h, x, w, &conv), g->spatial, NULL, dims + 2);
}

/* w of [g*a, b, k...] as [g*b, a, k...]: the kernel with its channel roles exchanged inside each group. */
static hlo_val_t exchange_channels(hlo_t *h, hlo_val_t w, int64_t groups) {
  const int rank = hlo_rank(h, w);
  const int64_t *d = hlo_dims(h, w);
  const int64_t a = d[0] / groups, b = d[1];
  int64_t split[MAX_SPATIAL + 3] = {groups, a, b}, joined[MAX_SPATIAL + 2] = {groups * b, a};
  int order[MAX_SPATIAL + 3] = {0, 2, 1};
  for (int i = 2; i < rank; i++) split[i + 1] = joined[i] = d[i], order[i + 1] = i + 1;
  w = hlo_reshape(h, w, rank + 1, split);
  w = hlo_transpose(h, w, order);
  return hlo_reshape(h, w, rank, joined);
}

/* Adjoint of correlate in x: spreads y of the kernel's output channels over an input of |dims|. */
static hlo_val_t spread_back(hlo_t *h, hlo_val_t y, hlo_val_t w, const geometry_t *g, int rank, const int64_t *dims) {
  if (is_empty(h, y, w)) return hlo_full(h, hlo_dtype(h, y), rank, dims, 0);
  int64_t low[MAX_SPATIAL], high[MAX_SPATIAL], drop[MAX_SPATIAL], axes_size = 0;
  int axes[MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) {
    const int64_t reach = (hlo_dim(h, w, 2 + d) - 1) * g->dilation[d], edge = reach - g->pad[d];
    const int64_t spread = (hlo_dim(h, y, 2 + d) - 1) * g->stride[d] + 1;
    drop[d] = at_least_zero(-edge);
    low[d] = at_least_zero(edge);
    high[d] = at_least_zero(dims[2 + d] + drop[d] + reach - spread - low[d]);
    if (hlo_dim(h, w, 2 + d) > 1) axes[axes_size++] = 2 + d;
  }
  if (axes_size) w = hlo_reverse(h, w, (int)axes_size, axes);
  if (g->groups > 1) w = exchange_channels(h, w, g->groups);
  const numbers_t numbers = dimension_numbers(g->spatial, g->groups > 1 ? "bfoibf" : "bfiobf");
  int64_t result[MAX_SPATIAL + 2] = {dims[0], dims[1]};
  for (int d = 0; d < g->spatial; d++) {
    const int64_t reach = (hlo_dim(h, w, 2 + d) - 1) * g->dilation[d];
    result[2 + d] = (hlo_dim(h, y, 2 + d) - 1) * g->stride[d] + 1 + low[d] + high[d] - reach;
  }
  const hlo_conv_t conv = {.spatial = g->spatial,
                           .pad_low = low,
                           .pad_high = high,
                           .lhs_dilation = g->stride,
                           .rhs_dilation = g->dilation,
                           .feature_groups = g->groups,
                           .dimension_numbers = numbers.text,
                           .result_dims = result};
  const hlo_val_t x = hlo_convolution(h, y, w, &conv);
  return crop(h, x, g->spatial, drop, dims + 2);
}

/* x of [n, g*c, s...] as [c, g*n, s...]: batch and channels exchanged, groups kept with the features. */
static hlo_val_t group_features(hlo_t *h, hlo_val_t x, int64_t groups) {
  const int rank = hlo_rank(h, x);
  const int64_t *d = hlo_dims(h, x);
  const int64_t n = d[0], c = d[1] / groups;
  int64_t split[MAX_SPATIAL + 3] = {n, groups, c}, joined[MAX_SPATIAL + 2] = {c, groups * n};
  int order[MAX_SPATIAL + 3] = {2, 1, 0};
  for (int i = 2; i < rank; i++) split[i + 1] = joined[i] = d[i], order[i + 1] = i + 1;
  x = hlo_reshape(h, x, rank + 1, split);
  x = hlo_transpose(h, x, order);
  return hlo_reshape(h, x, rank, joined);
}

/* Adjoint of correlate in w: the kernel gradient, itself a correlation of x with y over the batch. */
static hlo_val_t kernel_back(hlo_t *h, hlo_val_t x, hlo_val_t y, const geometry_t *g, int rank, const int64_t *dims) {
  if (is_empty(h, x, y)) return hlo_full(h, hlo_dtype(h, x), rank, dims, 0);
  int64_t high[MAX_SPATIAL], result[MAX_SPATIAL + 2] = {dims[0], dims[1]};
  for (int d = 0; d < g->spatial; d++) {
    const int64_t window = (hlo_dim(h, y, 2 + d) - 1) * g->stride[d] + 1;
    const int64_t need = (dims[2 + d] - 1) * g->dilation[d] + window, have = hlo_dim(h, x, 2 + d) + g->pad[d];
    high[d] = at_least_zero(need - have);
    result[2 + d] = (have + high[d] - window) / g->dilation[d] + 1;
  }
  const char *roles = "fbiofb";
  if (g->groups > 1) {
    x = group_features(h, x, g->groups);
    roles = "bfiofb";
  }
  const numbers_t numbers = dimension_numbers(g->spatial, roles);
  const hlo_conv_t conv = {.spatial = g->spatial,
                           .stride = g->dilation,
                           .pad_low = g->pad,
                           .pad_high = high,
                           .rhs_dilation = g->stride,
                           .feature_groups = g->groups,
                           .dimension_numbers = numbers.text,
                           .result_dims = result};
  const hlo_val_t w = hlo_convolution(h, x, y, &conv);
  return crop(h, w, g->spatial, NULL, dims + 2);
}

/* f16 has no wide accumulation in backends' convolutions; bf16 has. */
static hlo_val_t operand(hlo_t *h, const op_call_t *c, int i) {
  const hlo_val_t x = op_tensor(h, c, i);
  return hlo_dtype(h, x) == TTPU_F16 ? hlo_convert(h, x, TTPU_F32) : x;
}

static bool read_geometry(hlo_t *h, const op_call_t *c, int first, hlo_val_t x, int64_t groups, geometry_t *g) {
  *g = (geometry_t){.spatial = hlo_rank(h, x) - 2, .groups = groups};
  if (hlo_failed(h)) return false;
  if (g->spatial < 1 || g->spatial > MAX_SPATIAL) {
    hlo_fail(h, "%s: expected an operand of 3 to 5 dimensions, got %d", op_name(c), hlo_rank(h, x));
    return false;
  }
  nn_ints(c, first, g->spatial, 1, g->stride);
  nn_ints(c, first + 1, g->spatial, 0, g->pad);
  nn_ints(c, first + 2, g->spatial, 1, g->dilation);
  return true;
}

static hlo_val_t add_bias(hlo_t *h, hlo_val_t y, hlo_val_t bias) {
  return bias ? hlo_add(h, y, nn_along(h, bias, y, 1)) : y;
}

void op_emit_convolution(hlo_t *h, const op_call_t *c) {
  geometry_t g;
  const hlo_val_t x = operand(h, c, 0), w = op_tensor_as(h, c, 1, hlo_dtype(h, x));
  if (!read_geometry(h, c, 3, x, op_int(c, 8, 1), &g)) return;
  const int rank = op_result_rank(c, 0);
  const int64_t *dims = op_result_dims(c, 0);
  const hlo_val_t y = op_bool(c, 6, false) ? spread_back(h, x, w, &g, rank, dims) : correlate(h, x, w, &g, rank, dims);
  op_ret(h, c, 0, add_bias(h, y, nn_optional(h, c, 2, hlo_dtype(h, x))));
}

static void emit_backward(hlo_t *h, const op_call_t *c, int first, bool transposed, int64_t groups) {
  geometry_t g;
  const hlo_val_t dy = operand(h, c, 0), x = op_tensor_as(h, c, 1, hlo_dtype(h, dy));
  const hlo_val_t w = op_tensor_as(h, c, 2, hlo_dtype(h, dy));
  if (!read_geometry(h, c, first, x, groups, &g)) return;
  const int rank = hlo_rank(h, x);
  if (op_result_wanted(c, 0))
    op_ret(
        h, c, 0,
        transposed ? correlate(h, dy, w, &g, rank, hlo_dims(h, x)) : spread_back(h, dy, w, &g, rank, hlo_dims(h, x)));
  if (op_result_wanted(c, 1))
    op_ret(
        h, c, 1,
        transposed ? kernel_back(h, dy, x, &g, rank, hlo_dims(h, w)) : kernel_back(h, x, dy, &g, rank, hlo_dims(h, w)));
  if (op_result_wanted(c, 2)) {
    int dims[MAX_SPATIAL + 1] = {0};
    for (int d = 0; d < g.spatial; d++) dims[1 + d] = 2 + d;
    op_ret(h, c, 2, nn_sum(h, nn_up(h, dy), 1 + g.spatial, dims));
  }
}

void op_emit_convolution_backward(hlo_t *h, const op_call_t *c) {
  emit_backward(h, c, 4, op_bool(c, 7, false), op_int(c, 9, 1));
}

void op_emit_convolution_backward_overrideable(hlo_t *h, const op_call_t *c) {
  emit_backward(h, c, 3, op_bool(c, 6, false), op_int(c, 8, 1));
}

/* --- the forms with a kernel_size argument: self, weight, kernel_size, bias, stride, padding, ... ----------------- */

/* The detail names the form: "plain", "dilated" (dilation last), "transposed" (output_padding, dilation). */
void op_emit_slow_convolution(hlo_t *h, const op_call_t *c) {
  geometry_t g;
  hlo_val_t x = operand(h, c, 0);
  const hlo_val_t w = op_tensor_as(h, c, 1, hlo_dtype(h, x));
  const char form = op_detail(c)[0];
  const int spatial = hlo_rank(h, w) - 2, rank = op_result_rank(c, 0);
  if (hlo_failed(h)) return;
  if (hlo_rank(h, x) == spatial + 1) x = hlo_unsqueeze(h, x, 0);
  if (!read_geometry(h, c, 4, x, 1, &g)) return;
  const int missing = spatial + 2 - rank; /* 1: a single image */
  int64_t dims[MAX_SPATIAL + 2] = {1};
  nn_ints(c, form == 'd' ? 6 : form == 't' ? 7 : -1, spatial, 1, g.dilation);
  for (int i = 0; i < rank && missing >= 0; i++) dims[i + missing] = op_result_dims(c, 0)[i];
  const hlo_val_t y =
      form == 't' ? spread_back(h, x, w, &g, spatial + 2, dims) : correlate(h, x, w, &g, spatial + 2, dims);
  const hlo_val_t z = add_bias(h, y, nn_optional(h, c, 3, hlo_dtype(h, x)));
  op_ret(h, c, 0, hlo_reshape(h, z, rank, op_result_dims(c, 0)));
}
