/* loss.c: losses and their gradients. A loss is a formula of one value an element (or a sample), then the reduction.
 * Gradients multiply by grad_output, which is a number when the loss was reduced, and by 1/n when it was a mean.
 */
#include "ops/nn.h"

static ttpu_dtype_e pair_type(const op_call_t *c, int i, int j) {
  return ttpu_dtype_accumulate(op_result_type(c, i, j));
}

/* --- elementwise losses of d = self - target --------------------------------------------------------------------- */

static hlo_val_t difference(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e type) {
  const hlo_val_t x = op_tensor_as(h, c, i, type), t = op_tensor_as(h, c, i + 1, type);
  return hlo_sub(h, x, t);
}

/* Gradient |g| of each element times grad_output, and 1/n for a mean over |g|. */
static void ret_gradient(hlo_t *h, const op_call_t *c, hlo_val_t g, int64_t reduction) {
  const hlo_val_t dx = hlo_mul(h, g, op_tensor_as(h, c, 0, hlo_dtype(h, g)));
  op_ret(h, c, 0, reduction == NN_MEAN ? nn_over(h, dx, (double)hlo_numel(h, g)) : dx);
}

void op_emit_mse_loss(hlo_t *h, const op_call_t *c) {
  const hlo_val_t d = difference(h, c, 0, pair_type(c, 0, 1));
  op_ret(h, c, 0, nn_reduce_loss(h, nn_square(h, d), op_int(c, 2, NN_MEAN)));
}

void op_emit_mse_loss_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t d = difference(h, c, 1, pair_type(c, 1, 2));
  ret_gradient(h, c, nn_scale(h, d, 2), op_int(c, 3, NN_MEAN));
}

void op_emit_smooth_l1_loss(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 0, 1);
  const hlo_val_t z = hlo_abs(h, difference(h, c, 0, type)), beta = op_scalar(h, c, 3, type);
  const hlo_val_t near = hlo_div(h, nn_scale(h, nn_square(h, z), 0.5), beta),
                  far = hlo_sub(h, z, nn_scale(h, beta, 0.5));
  op_ret(h, c, 0, nn_reduce_loss(h, hlo_select(h, hlo_lt(h, z, beta), near, far), op_int(c, 2, NN_MEAN)));
}

void op_emit_smooth_l1_loss_backward(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 1, 2);
  const hlo_val_t d = difference(h, c, 1, type), beta = op_scalar(h, c, 4, type);
  const hlo_val_t near = hlo_div(h, d, beta), inside = hlo_lt(h, hlo_abs(h, d), beta);
  ret_gradient(h, c, hlo_select(h, inside, near, hlo_sign(h, d)), op_int(c, 3, NN_MEAN));
}

void op_emit_huber_loss(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 0, 1);
  const hlo_val_t z = hlo_abs(h, difference(h, c, 0, type)), delta = op_scalar(h, c, 3, type);
  const hlo_val_t near = nn_scale(h, nn_square(h, z), 0.5), past = hlo_sub(h, z, nn_scale(h, delta, 0.5));
  const hlo_val_t far = hlo_mul(h, delta, past);
  op_ret(h, c, 0, nn_reduce_loss(h, hlo_select(h, hlo_le(h, z, delta), near, far), op_int(c, 2, NN_MEAN)));
}

void op_emit_huber_loss_backward(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 1, 2);
  const hlo_val_t d = difference(h, c, 1, type), delta = op_scalar(h, c, 4, type);
  const hlo_val_t far = hlo_mul(h, hlo_sign(h, d), delta), inside = hlo_le(h, hlo_abs(h, d), delta);
  ret_gradient(h, c, hlo_select(h, inside, d, far), op_int(c, 3, NN_MEAN));
}

/* Logarithms are cut off at -100, as PyTorch does. */
static hlo_val_t cut(hlo_t *h, hlo_val_t log) { return hlo_max(h, log, hlo_like(h, log, -100)); }

void op_emit_binary_cross_entropy(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 0, 1);
  const hlo_val_t x = op_tensor_as(h, c, 0, type), t = op_tensor_as(h, c, 1, type);
  const hlo_val_t yes = hlo_mul(h, t, cut(h, hlo_log(h, x))), rest = nn_plus(h, t, -1);
  const hlo_val_t no = hlo_mul(h, rest, cut(h, hlo_log1p(h, hlo_neg(h, x))));
  hlo_val_t loss = hlo_sub(h, no, yes);
  if (op_has(c, 2)) loss = hlo_mul(h, loss, op_tensor_as(h, c, 2, type));
  op_ret(h, c, 0, nn_reduce_loss(h, loss, op_int(c, 3, NN_MEAN)));
}

void op_emit_binary_cross_entropy_backward(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 1, 2);
  const hlo_val_t x = op_tensor_as(h, c, 1, type), t = op_tensor_as(h, c, 2, type);
  const hlo_val_t spread = hlo_mul(h, nn_from(h, 1, x), x),
                  floor = hlo_max(h, spread, hlo_like(h, spread, (double)1e-12f));
  hlo_val_t g = hlo_div(h, hlo_sub(h, x, t), floor);
  if (op_has(c, 3)) g = hlo_mul(h, g, op_tensor_as(h, c, 3, type));
  ret_gradient(h, c, g, op_int(c, 4, NN_MEAN));
}

/* log1p(exp(-t x)), stable on both sides. */
void op_emit_soft_margin_loss(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 0, 1);
  const hlo_val_t x = op_tensor_as(h, c, 0, type), t = op_tensor_as(h, c, 1, type), z = hlo_neg(h, hlo_mul(h, x, t));
  const hlo_val_t tail = hlo_log1p(h, hlo_exp(h, hlo_neg(h, hlo_abs(h, z)))), top = hlo_max(h, z, hlo_like(h, z, 0));
  op_ret(h, c, 0, nn_reduce_loss(h, hlo_add(h, top, tail), op_int(c, 2, NN_MEAN)));
}

void op_emit_soft_margin_loss_backward(hlo_t *h, const op_call_t *c) {
  const ttpu_dtype_e type = pair_type(c, 1, 2);
  const hlo_val_t x = op_tensor_as(h, c, 1, type), t = op_tensor_as(h, c, 2, type);
  const hlo_val_t weight = hlo_logistic(h, hlo_neg(h, hlo_mul(h, x, t)));
  ret_gradient(h, c, hlo_neg(h, hlo_mul(h, t, weight)), op_int(c, 3, NN_MEAN));
}

/* --- negative log likelihood: the class dimension is 1, or the only one ------------------------------------------- */

typedef struct {
  int dim;            /* of the classes in x */
  hlo_val_t x, index; /* index: targets, 0 where ignored; x's dims with one class */
  hlo_val_t ignored;  /* i1, index's dims */
  hlo_val_t weight;   /* of each target, 0 where ignored; index's dims */
} classes_t;

static bool read_classes(hlo_t *h, const op_call_t *c, int x_arg, int weight_arg, int64_t ignore, classes_t *out) {
  const hlo_val_t x = nn_tensor(h, c, x_arg);
  if (hlo_failed(h)) return false;
  const int rank = hlo_rank(h, x), dim = rank == 1 ? 0 : 1;
  int64_t dims[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = i == dim ? 1 : hlo_dim(h, x, i);
  const hlo_val_t target = hlo_reshape(h, op_tensor_as(h, c, x_arg + 1, TTPU_I64), rank, dims);
  const hlo_val_t ignored = hlo_eq(h, target, hlo_const_int(h, TTPU_I64, ignore));
  const hlo_val_t index = hlo_select(h, ignored, hlo_full_like(h, target, 0), target);
  hlo_val_t weight = hlo_full(h, hlo_dtype(h, x), rank, dims, 1);
  if (op_has(c, weight_arg)) {
    const hlo_val_t table = op_tensor_as(h, c, weight_arg, hlo_dtype(h, x));
    weight = hlo_reshape(h, hlo_index_select(h, table, hlo_flatten(h, index), 0), rank, dims);
  }
  weight = hlo_select(h, ignored, hlo_full_like(h, weight, 0), weight);
  *out = (classes_t){.dim = dim, .x = x, .index = index, .ignored = ignored, .weight = weight};
  return !hlo_failed(h);
}

/* self, target, weight, reduction, ignore_index -> output, total_weight */
void op_emit_nll_loss(hlo_t *h, const op_call_t *c) {
  classes_t k;
  const int64_t reduction = op_int(c, 3, NN_MEAN);
  if (!read_classes(h, c, 0, 2, op_int(c, 4, -100), &k)) return;
  hlo_val_t loss;
  if (hlo_numel(h, k.index) == 0) {
    loss = hlo_full_like(h, k.weight, 0);
  } else {
    const hlo_val_t picked = hlo_neg(h, hlo_take_along(h, k.x, k.index, k.dim));
    loss = hlo_select(h, k.ignored, hlo_full_like(h, picked, 0), hlo_mul(h, picked, k.weight));
  }
  const bool each = reduction == NN_NONE && hlo_rank(h, k.x) > 1;
  const hlo_val_t total = hlo_reduce_all(h, "add", k.weight);
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, each ? hlo_like(h, total, 0) : total);
  if (reduction == NN_NONE) {
    op_ret(h, c, 0, hlo_reshape(h, loss, op_result_rank(c, 0), op_result_dims(c, 0)));
    return;
  }
  const hlo_val_t sum = hlo_reduce_all(h, "add", loss);
  op_ret(h, c, 0, reduction == NN_MEAN ? hlo_div(h, sum, total) : sum);
}

/* grad_output, self, target, weight, reduction, ignore_index, total_weight */
void op_emit_nll_loss_backward(hlo_t *h, const op_call_t *c) {
  classes_t k;
  const int64_t reduction = op_int(c, 4, NN_MEAN);
  if (!read_classes(h, c, 1, 3, op_int(c, 5, -100), &k)) return;
  const ttpu_dtype_e type = hlo_dtype(h, k.x);
  hlo_val_t g = op_tensor_as(h, c, 0, type);
  if (reduction == NN_NONE) g = hlo_reshape(h, g, hlo_rank(h, k.weight), hlo_dims(h, k.weight));
  if (reduction == NN_MEAN) g = hlo_div(h, g, hlo_flatten(h, op_tensor_as(h, c, 6, type)));
  const hlo_val_t value = hlo_expand_like(h, hlo_neg(h, hlo_mul(h, g, k.weight)), k.x);
  const hlo_val_t position = hlo_iota_like(h, TTPU_I64, k.x, k.dim),
                  hit = hlo_eq(h, position, hlo_expand_like(h, k.index, k.x));
  const hlo_val_t counts = hlo_not(h, hlo_expand_like(h, k.ignored, k.x)), here = hlo_and(h, hit, counts);
  op_ret(h, c, 0, nn_keep(h, here, value));
}

/* --- margins over classes: x as [samples, classes] ---------------------------------------------------------------- */

typedef struct {
  int64_t samples, classes;
  hlo_val_t x, target; /* target: [samples, labels] */
} margin_t;

static bool read_margin(hlo_t *h, const op_call_t *c, int x_arg, margin_t *m) {
  const hlo_val_t x = nn_tensor(h, c, x_arg), t = op_tensor_as(h, c, x_arg + 1, TTPU_I64);
  if (hlo_failed(h)) return false;
  *m = (margin_t){.samples = hlo_rank(h, x) < 2 ? 1 : hlo_dim(h, x, 0),
                  .classes = hlo_rank(h, x) == 0 ? 1 : hlo_dim(h, x, -1)};
  const int64_t dims[2] = {m->samples, m->classes};
  const int64_t labels[2] = {m->samples, m->samples ? hlo_numel(h, t) / m->samples : 1};
  m->x = hlo_reshape(h, x, 2, dims);
  m->target = hlo_reshape(h, t, 2, labels);
  return !hlo_failed(h);
}

/* One value a sample, reduced or in the result's shape. */
static void ret_samples(hlo_t *h, const op_call_t *c, hlo_val_t loss, int64_t reduction) {
  const hlo_val_t r = nn_reduce_loss(h, loss, reduction);
  op_ret(h, c, 0, hlo_reshape(h, r, op_result_rank(c, 0), op_result_dims(c, 0)));
}

/* grad_output as [samples, 1] or rank 0, with the factor of the reduction and of the mean over classes. */
static hlo_val_t sample_gradient(hlo_t *h, const op_call_t *c, const margin_t *m, int64_t reduction) {
  const int64_t column[2] = {m->samples, 1};
  hlo_val_t g = op_tensor_as(h, c, 0, hlo_dtype(h, m->x));
  if (reduction == NN_NONE)
    g = hlo_reshape(h, g, 2, column);
  else
    g = hlo_reshape(h, g, 0, NULL);
  return nn_over(h, g, (double)m->classes * (reduction == NN_MEAN ? (double)m->samples : 1));
}

typedef struct {
  hlo_val_t z, counts, hit, weight, linear; /* [samples, classes] but weight: [samples, 1] or 0; linear: p == 1 */
} hinge_t;

static hinge_t hinge(hlo_t *h, const op_call_t *c, const margin_t *m, int p_arg) {
  const ttpu_dtype_e type = hlo_dtype(h, m->x);
  hinge_t g = {0};
  const hlo_val_t own = hlo_take_along(h, m->x, m->target, 1), margin = op_scalar(h, c, p_arg + 1, type);
  g.z = hlo_sub(h, m->x, own);
  g.z = hlo_add(h, g.z, margin);
  g.hit = hlo_eq(h, hlo_iota_like(h, TTPU_I64, m->x, 1), hlo_expand_like(h, m->target, m->x));
  const hlo_val_t other = hlo_not(h, g.hit);
  g.counts = hlo_and(h, other, hlo_gt(h, g.z, hlo_like(h, g.z, 0)));
  if (op_has(c, p_arg + 2)) {
    const hlo_val_t table = op_tensor_as(h, c, p_arg + 2, type), flat = hlo_flatten(h, m->target);
    g.weight = hlo_unsqueeze(h, hlo_index_select(h, table, flat, 0), 1);
  }
  const hlo_val_t p = op_scalar(h, c, p_arg, type);
  g.linear = hlo_eq(h, p, hlo_like(h, p, 1));
  return g;
}

/* self, target, p, margin, weight, reduction */
void op_emit_multi_margin_loss(hlo_t *h, const op_call_t *c) {
  margin_t m;
  if (!read_margin(h, c, 0, &m)) return;
  const hinge_t g = hinge(h, c, &m, 2);
  hlo_val_t loss = hlo_select(h, hlo_expand_like(h, g.linear, g.z), g.z, nn_square(h, g.z));
  if (g.weight) loss = hlo_mul(h, loss, g.weight);
  loss = hlo_reduce_dim(h, "add", nn_keep(h, g.counts, loss), 1);
  ret_samples(h, c, nn_over(h, loss, (double)m.classes), op_int(c, 5, NN_MEAN));
}

/* grad_output, self, target, p, margin, weight, reduction */
void op_emit_multi_margin_loss_backward(hlo_t *h, const op_call_t *c) {
  margin_t m;
  if (!read_margin(h, c, 1, &m)) return;
  const hinge_t g = hinge(h, c, &m, 3);
  hlo_val_t slope = hlo_select(h, hlo_expand_like(h, g.linear, g.z), hlo_full_like(h, g.z, 1), nn_scale(h, g.z, 2));
  if (g.weight) slope = hlo_mul(h, slope, g.weight);
  slope = hlo_mul(h, nn_keep(h, g.counts, slope), sample_gradient(h, c, &m, op_int(c, 6, NN_MEAN)));
  const hlo_val_t own = hlo_neg(h, hlo_reduce_dim(h, "add", slope, 1));
  const hlo_val_t dx = hlo_select(h, g.hit, nn_spread_dim(h, own, slope, 1), slope);
  op_ret(h, c, 0, hlo_reshape(h, dx, op_result_rank(c, 0), op_result_dims(c, 0)));
}

/* Labels up to the first negative one: which are valid, with invalid ones set to 0; and [samples, label, class] i1. */
typedef struct {
  hlo_val_t index, valid, one_hot;
} labels_t;

static labels_t read_labels(hlo_t *h, const margin_t *m) {
  const int64_t dims[3] = {m->samples, m->classes, m->classes};
  const int row[2] = {0, 1};
  const hlo_val_t at = hlo_iota_like(h, TTPU_I64, m->target, 1), end = hlo_const_int(h, TTPU_I64, m->classes);
  const hlo_val_t negative = hlo_lt(h, m->target, hlo_like(h, m->target, 0));
  const hlo_val_t stop = hlo_reduce_dim(h, "minimum", hlo_select(h, negative, at, end), 1);
  labels_t l;
  l.valid = hlo_lt(h, at, nn_spread_dim(h, stop, at, 1));
  l.index = nn_keep(h, l.valid, m->target);
  const hlo_val_t class = hlo_iota(h, TTPU_I64, 3, dims, 2),
                  hit = hlo_eq(h, class, hlo_broadcast_in(h, l.index, 3, dims, row));
  l.one_hot = hlo_and(h, hit, hlo_broadcast_in(h, l.valid, 3, dims, row));
  return l;
}

/* 1 - x[label] + x[class] as [samples, label, class], and where it counts. */
static hlo_val_t label_margins(hlo_t *h, const margin_t *m, const labels_t *l, hlo_val_t is_target, hlo_val_t *counts) {
  const int64_t dims[3] = {m->samples, m->classes, m->classes};
  const int row[2] = {0, 1}, column[2] = {0, 2};
  const hlo_val_t own = hlo_broadcast_in(h, hlo_take_along(h, m->x, l->index, 1), 3, dims, row);
  const hlo_val_t z = nn_plus(h, hlo_sub(h, hlo_broadcast_in(h, m->x, 3, dims, column), own), 1);
  const hlo_val_t other = hlo_broadcast_in(h, hlo_not(h, is_target), 3, dims, column);
  const hlo_val_t pair = hlo_and(h, other, hlo_broadcast_in(h, l->valid, 3, dims, row));
  *counts = hlo_and(h, pair, hlo_gt(h, z, hlo_like(h, z, 0)));
  return z;
}

/* self, target, reduction -> output, is_target */
void op_emit_multilabel_margin_loss(hlo_t *h, const op_call_t *c) {
  margin_t m;
  if (!read_margin(h, c, 0, &m)) return;
  const labels_t l = read_labels(h, &m);
  const hlo_val_t is_target = hlo_reduce_dim(h, "or", l.one_hot, 1);
  if (op_result_wanted(c, 1)) {
    const hlo_val_t flags = hlo_convert(h, is_target, hlo_dtype(h, m.x));
    op_ret(h, c, 1, hlo_reshape(h, flags, op_result_rank(c, 1), op_result_dims(c, 1)));
  }
  hlo_val_t counts;
  const hlo_val_t z = label_margins(h, &m, &l, is_target, &counts);
  const int pairs[2] = {1, 2};
  const hlo_val_t loss = nn_sum(h, nn_keep(h, counts, z), 2, pairs);
  ret_samples(h, c, nn_over(h, loss, (double)m.classes), op_int(c, 2, NN_MEAN));
}

/* grad_output, self, target, reduction, is_target */
void op_emit_multilabel_margin_loss_backward(hlo_t *h, const op_call_t *c) {
  margin_t m;
  if (!read_margin(h, c, 1, &m)) return;
  const ttpu_dtype_e type = hlo_dtype(h, m.x);
  const labels_t l = read_labels(h, &m);
  hlo_val_t counts;
  label_margins(h, &m, &l, hlo_reduce_dim(h, "or", l.one_hot, 1), &counts);
  const hlo_val_t ones = hlo_convert(h, counts, type), up = hlo_reduce_dim(h, "add", ones, 1);
  const hlo_val_t each = nn_spread_dim(h, hlo_reduce_dim(h, "add", ones, 2), ones, 2);
  const hlo_val_t down = hlo_reduce_dim(h, "add", nn_keep(h, l.one_hot, each), 1);
  const hlo_val_t dx = hlo_mul(h, hlo_sub(h, up, down), sample_gradient(h, c, &m, op_int(c, 3, NN_MEAN)));
  op_ret(h, c, 0, hlo_reshape(h, dx, op_result_rank(c, 0), op_result_dims(c, 0)));
}
