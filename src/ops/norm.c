/* norm.c: batch, layer, group and weight normalisation with their gradients.
 *
 * All of them are one pattern: statistics over some dimensions, (x - mean) * rstd, then a scale and shift along others.
 * Variances are two-pass (mean first), in the accumulation type. Running statistics are results of the same call.
 */
#include "ops/nn.h"

/* --- the pattern ------------------------------------------------------------------------------------------------ */

/* Dimensions reduced by a norm, and how many elements each statistic is over. */
typedef struct {
  int count, dims[TTPU_MAX_RANK];
  double n;
} over_t;

static hlo_val_t mean_over(hlo_t *h, hlo_val_t x, const over_t *o) {
  return nn_over(h, nn_sum(h, x, o->count, o->dims), o->n);
}
static hlo_val_t spread(hlo_t *h, hlo_val_t s, hlo_val_t x, const over_t *o) {
  return hlo_spread(h, s, x, o->count, o->dims);
}

static hlo_val_t centre(hlo_t *h, hlo_val_t x, hlo_val_t mean, const over_t *o) {
  return hlo_sub(h, x, spread(h, mean, x, o));
}

/* 1 / sqrt(var + eps) with eps a rank-0 value. */
static hlo_val_t inverse_root(hlo_t *h, hlo_val_t var, hlo_val_t eps) { return hlo_rsqrt(h, hlo_add(h, var, eps)); }

/* Gradient of xhat = (x - mean) * rstd in x, given the gradient |g| of xhat: rstd * (g - mean(g) - xhat * mean(g *
 * xhat)). */
static hlo_val_t normal_back(hlo_t *h, hlo_val_t g, hlo_val_t xhat, hlo_val_t rstd, const over_t *o) {
  const hlo_val_t along = mean_over(h, hlo_mul(h, g, xhat), o), level = mean_over(h, g, o);
  hlo_val_t dx = hlo_sub(h, g, spread(h, level, g, o));
  const hlo_val_t projection = hlo_mul(h, xhat, spread(h, along, g, o));
  dx = hlo_sub(h, dx, projection);
  return hlo_mul(h, dx, spread(h, rstd, dx, o));
}

static hlo_val_t reshaped_result(hlo_t *h, const op_call_t *c, int k, hlo_val_t v) {
  return hlo_reshape(h, v, op_result_rank(c, k), op_result_dims(c, k));
}

/* --- batch norm ------------------------------------------------------------------------------------------------- */

/* All dimensions but the channels'. */
static over_t all_but(hlo_t *h, hlo_val_t x, int kept) {
  over_t o = {.n = 1};
  for (int i = 0; i < hlo_rank(h, x); i++) {
    if (i == kept) continue;
    o.dims[o.count++] = i;
    o.n *= (double)hlo_dim(h, x, i);
  }
  return o;
}

/* Argument numbers of a batch norm; -1 where the overload has none. */
typedef struct {
  int running_mean, running_var, momentum, eps;
  bool training;
} batch_args_t;

static void ret_statistic(hlo_t *h, const op_call_t *c, int k, hlo_val_t v) {
  if (!op_result_wanted(c, k)) return;
  if (ttpu_dims_numel(op_result_rank(c, k), op_result_dims(c, k)) == 0) {
    nn_ret_full(h, c, k, 0); /* evaluation mode saves nothing */
  } else {
    op_ret(h, c, k, v);
  }
}

/* running = momentum * now + (1 - momentum) * running */
static hlo_val_t running_average(hlo_t *h, hlo_val_t running, hlo_val_t now, hlo_val_t momentum) {
  const hlo_val_t fresh = hlo_mul(h, now, momentum), rest = nn_from(h, 1, momentum);
  return hlo_add(h, fresh, hlo_mul(h, running, rest));
}

/* |first_running|: number of the result that takes the new running mean (the variance follows). */
static void batch_norm(hlo_t *h, const op_call_t *c, batch_args_t a, int first_running) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const over_t o = all_but(h, x, 1);
  const hlo_val_t eps = op_scalar(h, c, a.eps, type);
  const bool has_mean = a.running_mean >= 0 && op_has(c, a.running_mean),
             has_var = a.running_var >= 0 && op_has(c, a.running_var);
  hlo_val_t mean, square = 0, rstd;
  if (a.training) {
    mean = mean_over(h, x, &o);
    square = nn_sum(h, nn_square(h, centre(h, x, mean, &o)), o.count, o.dims);
    rstd = inverse_root(h, nn_over(h, square, o.n), eps);
  } else {
    mean = op_tensor_as(h, c, a.running_mean, type);
    rstd = inverse_root(h, op_tensor_as(h, c, a.running_var, type), eps);
  }
  hlo_val_t gain = rstd;
  if (op_has(c, 1)) gain = hlo_mul(h, gain, op_tensor_as(h, c, 1, type));
  hlo_val_t y = centre(h, x, mean, &o);
  y = hlo_mul(h, y, spread(h, gain, x, &o));
  if (op_has(c, 2)) y = hlo_add(h, y, nn_along(h, op_tensor_as(h, c, 2, type), y, 1));
  op_ret(h, c, 0, y);
  ret_statistic(h, c, 1, mean);
  ret_statistic(h, c, 2, rstd);
  if (first_running < 0) return;
  for (int k = 3; k < first_running; k++) ret_statistic(h, c, k, hlo_const(h, TTPU_U8, 0));
  for (int i = 0; i < 2; i++) {
    const int k = first_running + i, arg = i ? a.running_var : a.running_mean;
    if (k >= op_result_count(c) || !op_result_wanted(c, k)) continue;
    if (!(i ? has_var : has_mean)) continue;
    const hlo_val_t old = op_tensor_as(h, c, arg, type);
    if (!a.training) {
      op_ret(h, c, k, old);
      continue;
    }
    const hlo_val_t now = i ? nn_over(h, square, o.n - 1) : mean, momentum = op_scalar(h, c, a.momentum, type);
    op_ret(h, c, k, running_average(h, old, now, momentum));
  }
}

void op_emit_batch_norm(hlo_t *h, const op_call_t *c) {
  batch_norm(h, c, (batch_args_t){3, 4, 6, 7, op_bool(c, 5, false)}, 3);
}
void op_emit_batch_norm_no_stats(hlo_t *h, const op_call_t *c) {
  batch_norm(h, c, (batch_args_t){-1, -1, 4, 5, true}, -1);
}
void op_emit_batch_norm_no_training(hlo_t *h, const op_call_t *c) {
  batch_norm(h, c, (batch_args_t){3, 4, 5, 6, false}, -1);
}
/* A fourth result, the reserve, is empty here. */
void op_emit_batch_norm_with_update(hlo_t *h, const op_call_t *c) {
  batch_norm(h, c, (batch_args_t){3, 4, 5, 6, true}, 4);
}

/* grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask */
void op_emit_batch_norm_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 1);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const hlo_val_t dy = op_tensor_as(h, c, 0, type);
  const bool train = op_bool(c, 7, false);
  const over_t o = all_but(h, x, 1);
  const hlo_val_t mean = op_tensor_as(h, c, train ? 5 : 3, type);
  hlo_val_t rstd;
  if (train) {
    rstd = op_tensor_as(h, c, 6, type);
  } else {
    const hlo_val_t eps = op_scalar(h, c, 8, type);
    rstd = inverse_root(h, op_tensor_as(h, c, 4, type), eps);
  }
  hlo_val_t xhat = centre(h, x, mean, &o);
  xhat = hlo_mul(h, xhat, spread(h, rstd, x, &o));
  if (op_result_wanted(c, 0)) {
    hlo_val_t g = dy;
    if (op_has(c, 2)) g = hlo_mul(h, g, nn_along(h, op_tensor_as(h, c, 2, type), g, 1));
    op_ret(h, c, 0, train ? normal_back(h, g, xhat, rstd, &o) : hlo_mul(h, g, spread(h, rstd, g, &o)));
  }
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, nn_sum(h, hlo_mul(h, dy, xhat), o.count, o.dims));
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, nn_sum(h, dy, o.count, o.dims));
}

/* --- layer norm ------------------------------------------------------------------------------------------------- */

/* The last |normalized| dimensions, or those before them. */
static over_t trailing(hlo_t *h, hlo_val_t x, int normalized, bool rest) {
  over_t o = {.n = 1};
  const int rank = hlo_rank(h, x), split = rank - normalized;
  for (int i = rest ? 0 : split; i < (rest ? split : rank); i++) {
    o.dims[o.count++] = i;
    o.n *= (double)hlo_dim(h, x, i);
  }
  return o;
}

static int normalized_rank(const op_call_t *c, int i) {
  const int64_t *dims = NULL;
  return op_ints(c, i, &dims);
}

/* input, normalized_shape, weight, bias, eps -> output, mean, rstd */
void op_emit_layer_norm(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const over_t o = trailing(h, x, normalized_rank(c, 1), false);
  const hlo_val_t mean = mean_over(h, x, &o), away = centre(h, x, mean, &o), eps = op_scalar(h, c, 4, type);
  const hlo_val_t rstd = inverse_root(h, mean_over(h, nn_square(h, away), &o), eps);
  hlo_val_t y = hlo_mul(h, away, spread(h, rstd, x, &o));
  if (op_has(c, 2)) y = hlo_mul(h, y, op_tensor_as(h, c, 2, type));
  if (op_has(c, 3)) y = hlo_add(h, y, op_tensor_as(h, c, 3, type));
  op_ret(h, c, 0, y);
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, reshaped_result(h, c, 1, mean));
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, reshaped_result(h, c, 2, rstd));
}

/* grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask */
void op_emit_layer_norm_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 1);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const hlo_val_t dy = op_tensor_as(h, c, 0, type);
  const int n = normalized_rank(c, 2), rank = hlo_rank(h, x);
  const over_t inner = trailing(h, x, n, false), outer = trailing(h, x, n, true);
  const hlo_val_t mean = hlo_reshape(h, op_tensor_as(h, c, 3, type), rank - n, hlo_dims(h, x));
  const hlo_val_t rstd = hlo_reshape(h, op_tensor_as(h, c, 4, type), rank - n, hlo_dims(h, x));
  hlo_val_t xhat = centre(h, x, mean, &inner);
  xhat = hlo_mul(h, xhat, spread(h, rstd, x, &inner));
  if (op_result_wanted(c, 0)) {
    hlo_val_t g = dy;
    if (op_has(c, 5)) g = hlo_mul(h, g, op_tensor_as(h, c, 5, type));
    op_ret(h, c, 0, normal_back(h, g, xhat, rstd, &inner));
  }
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, nn_sum(h, hlo_mul(h, dy, xhat), outer.count, outer.dims));
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, nn_sum(h, dy, outer.count, outer.dims));
}

/* --- group norm: x seen as [N, groups, channels of a group, positions] ------------------------------------------- */

static const over_t none = {0};

static hlo_val_t as_groups(hlo_t *h, hlo_val_t x, const int64_t *dims) { return hlo_reshape(h, x, 4, dims); }

/* A [channels] parameter as [1, groups, channels of a group, 1]. */
static hlo_val_t as_channels(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e type, const int64_t *dims) {
  const int64_t shape[4] = {1, dims[1], dims[2], 1};
  return hlo_reshape(h, op_tensor_as(h, c, i, type), 4, shape);
}

static over_t group_over(const int64_t *dims) {
  over_t o = none;
  o.count = 2, o.dims[0] = 2, o.dims[1] = 3, o.n = (double)(dims[2] * dims[3]);
  return o;
}

/* N, C, HxW, group from argument |first| on. */
static void group_dims(const op_call_t *c, int first, int64_t *out) {
  const int64_t group = op_int(c, first + 3, 1);
  out[0] = op_int(c, first, 0), out[1] = group, out[2] = op_int(c, first + 1, 0) / (group ? group : 1),
  out[3] = op_int(c, first + 2, 0);
}

/* input, weight, bias, N, C, HxW, group, eps -> output, mean, rstd */
void op_emit_group_norm(hlo_t *h, const op_call_t *c) {
  int64_t dims[4];
  group_dims(c, 3, dims);
  const hlo_val_t x = as_groups(h, nn_tensor(h, c, 0), dims);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const over_t o = group_over(dims);
  const hlo_val_t mean = mean_over(h, x, &o), away = centre(h, x, mean, &o), eps = op_scalar(h, c, 7, type);
  const hlo_val_t rstd = inverse_root(h, mean_over(h, nn_square(h, away), &o), eps);
  hlo_val_t y = hlo_mul(h, away, spread(h, rstd, x, &o));
  if (op_has(c, 1)) y = hlo_mul(h, y, as_channels(h, c, 1, type, dims));
  if (op_has(c, 2)) y = hlo_add(h, y, as_channels(h, c, 2, type, dims));
  op_ret(h, c, 0, reshaped_result(h, c, 0, y));
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, mean);
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, rstd);
}

/* grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask */
void op_emit_group_norm_backward(hlo_t *h, const op_call_t *c) {
  int64_t dims[4];
  group_dims(c, 5, dims);
  const hlo_val_t x = as_groups(h, nn_tensor(h, c, 1), dims);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const hlo_val_t dy = as_groups(h, op_tensor_as(h, c, 0, type), dims);
  const over_t o = group_over(dims);
  const hlo_val_t mean = hlo_reshape(h, op_tensor_as(h, c, 2, type), 2, dims);
  const hlo_val_t rstd = hlo_reshape(h, op_tensor_as(h, c, 3, type), 2, dims);
  hlo_val_t xhat = centre(h, x, mean, &o);
  xhat = hlo_mul(h, xhat, spread(h, rstd, x, &o));
  if (op_result_wanted(c, 0)) {
    hlo_val_t g = dy;
    if (op_has(c, 4)) g = hlo_mul(h, g, as_channels(h, c, 4, type, dims));
    op_ret(h, c, 0, reshaped_result(h, c, 0, normal_back(h, g, xhat, rstd, &o)));
  }
  const int batch[2] = {0, 3};
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, reshaped_result(h, c, 1, nn_sum(h, hlo_mul(h, dy, xhat), 2, batch)));
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, reshaped_result(h, c, 2, nn_sum(h, dy, 2, batch)));
}

/* --- root mean square norm --------------------------------------------------------------------------------------- */

/* grad_out, input, normalized_shape, rstd, weight, output_mask */
void op_emit_rms_norm_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 1);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, x);
  const hlo_val_t dy = op_tensor_as(h, c, 0, type);
  const int n = normalized_rank(c, 2), rank = hlo_rank(h, x);
  const over_t inner = trailing(h, x, n, false), outer = trailing(h, x, n, true);
  const hlo_val_t rstd = hlo_reshape(h, op_tensor_as(h, c, 3, type), rank - n, hlo_dims(h, x));
  const hlo_val_t scale = spread(h, rstd, x, &inner), xhat = hlo_mul(h, x, scale);
  if (op_result_wanted(c, 0)) {
    hlo_val_t g = dy;
    if (op_has(c, 4)) g = hlo_mul(h, g, op_tensor_as(h, c, 4, type));
    const hlo_val_t along = mean_over(h, hlo_mul(h, g, xhat), &inner);
    const hlo_val_t projection = hlo_mul(h, xhat, spread(h, along, x, &inner));
    op_ret(h, c, 0, hlo_mul(h, hlo_sub(h, g, projection), scale));
  }
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, nn_sum(h, hlo_mul(h, dy, xhat), outer.count, outer.dims));
}

/* --- weight norm: w = v * g / |v|, the norm over all dimensions but |dim| ----------------------------------------- */

/* v, g, dim -> w, norms */
void op_emit_weight_norm(hlo_t *h, const op_call_t *c) {
  const hlo_val_t v = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const over_t o = all_but(h, v, op_dim(c, 2, hlo_rank(h, v)));
  const hlo_val_t g = hlo_flatten(h, op_tensor_as(h, c, 1, hlo_dtype(h, v)));
  const hlo_val_t norm = hlo_sqrt(h, nn_sum(h, nn_square(h, v), o.count, o.dims)), gain = hlo_div(h, g, norm);
  op_ret(h, c, 0, hlo_mul(h, v, spread(h, gain, v, &o)));
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, reshaped_result(h, c, 1, norm));
}

/* grad_w, saved_v, saved_g, saved_norms, dim -> grad_v, grad_g */
void op_emit_weight_norm_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dw = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const ttpu_dtype_e type = hlo_dtype(h, dw);
  const hlo_val_t v = op_tensor_as(h, c, 1, type);
  const over_t o = all_but(h, v, op_dim(c, 4, hlo_rank(h, v)));
  const hlo_val_t g = hlo_flatten(h, op_tensor_as(h, c, 2, type)), norm = hlo_flatten(h, op_tensor_as(h, c, 3, type));
  const hlo_val_t along = nn_sum(h, hlo_mul(h, dw, v), o.count, o.dims), gain = hlo_div(h, g, norm);
  const hlo_val_t unit = hlo_div(h, along, nn_square(h, norm));
  const hlo_val_t away = hlo_sub(h, dw, hlo_mul(h, v, spread(h, unit, v, &o)));
  if (op_result_wanted(c, 0)) op_ret(h, c, 0, hlo_mul(h, away, spread(h, gain, v, &o)));
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, reshaped_result(h, c, 1, hlo_div(h, along, norm)));
}
