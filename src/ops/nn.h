/* nn.h: the small steps that lowerings of neural-network families share. Nothing here knows an operator.
 * Half types compute in f32 ("up"), as CPU PyTorch accumulates; op_ret rounds once at the end.
 */
#ifndef TTPU_OPS_NN_H_
#define TTPU_OPS_NN_H_

#include "ops/ops.h"

/* PyTorch's reduction argument of losses. */
enum { NN_NONE = 0, NN_MEAN = 1, NN_SUM = 2 };

static inline hlo_val_t nn_up(hlo_t *h, hlo_val_t x) {
  return hlo_convert(h, x, ttpu_dtype_accumulate(hlo_dtype(h, x)));
}

/* Tensor argument |i| in its accumulation type. */
static inline hlo_val_t nn_tensor(hlo_t *h, const op_call_t *c, int i) { return nn_up(h, op_tensor(h, c, i)); }

/* Optional tensor argument |i| in |dtype|; 0 when it was not given. */
static inline hlo_val_t nn_optional(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e dtype) {
  return op_has(c, i) ? op_tensor_as(h, c, i, dtype) : 0;
}

/* Rank-1 |v| laid along dimension |dim| of |like|'s dims. */
static inline hlo_val_t nn_along(hlo_t *h, hlo_val_t v, hlo_val_t like, int dim) {
  return hlo_broadcast_in(h, v, hlo_rank(h, like), hlo_dims(h, like), &dim);
}

static inline hlo_val_t nn_square(hlo_t *h, hlo_val_t x) { return hlo_mul(h, x, x); }
/* x times or divided by a number known when the program is written. */
static inline hlo_val_t nn_scale(hlo_t *h, hlo_val_t x, double factor) { return hlo_mul(h, x, hlo_like(h, x, factor)); }
static inline hlo_val_t nn_over(hlo_t *h, hlo_val_t x, double divisor) {
  return hlo_div(h, x, hlo_like(h, x, divisor));
}
static inline hlo_val_t nn_plus(hlo_t *h, hlo_val_t x, double term) { return hlo_add(h, x, hlo_like(h, x, term)); }
/* number - x */
static inline hlo_val_t nn_from(hlo_t *h, double number, hlo_val_t x) {
  const hlo_val_t n = hlo_like(h, x, number);
  return hlo_sub(h, n, x);
}
static inline hlo_val_t nn_reciprocal(hlo_t *h, hlo_val_t x) {
  const hlo_val_t one = hlo_like(h, x, 1);
  return hlo_div(h, one, x);
}
/* |x| where |keep|, else 0. */
static inline hlo_val_t nn_keep(hlo_t *h, hlo_val_t keep, hlo_val_t x) {
  return hlo_select(h, keep, x, hlo_full_like(h, x, 0));
}

/* Sum over |dims|, removed. */
static inline hlo_val_t nn_sum(hlo_t *h, hlo_val_t x, int count, const int *dims) {
  return hlo_reduce(h, "add", x, count, dims);
}
/* Maximum along |dim| that may lose a NaN: for softmax, whose sum of exponentials brings it back. Not only faster than
 * hlo_reduce_dim: libtpu 0.0.52 crashes on a softmax of masked values whose maximum is a region of compare and select.
 */
static inline void nn_plain_maximum(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_raw(h, "stablehlo.maximum", 2, args, "", hlo_dtype(h, args[0]), 0, NULL);
}
static inline hlo_val_t nn_top(hlo_t *h, hlo_val_t x, int dim) {
  const hlo_val_t lowest = hlo_lowest(h, hlo_dtype(h, x));
  hlo_val_t top = 0;
  hlo_reduce_n(h, 1, &x, &lowest, 1, &dim, nn_plain_maximum, NULL, &top);
  return top;
}
static inline hlo_val_t nn_spread_dim(hlo_t *h, hlo_val_t x, hlo_val_t like, int dim) {
  return hlo_spread(h, x, like, 1, &dim);
}

/* Result |k| filled with |value|. */
static inline void nn_ret_full(hlo_t *h, const op_call_t *c, int k, double value) {
  op_ret(h, c, k, hlo_full(h, op_result_dtype(c, k), op_result_rank(c, k), op_result_dims(c, k), value));
}

/* A loss of one value an element, reduced as asked. */
static inline hlo_val_t nn_reduce_loss(hlo_t *h, hlo_val_t loss, int64_t reduction) {
  if (reduction == NN_NONE) return loss;
  const double n = (double)hlo_numel(h, loss);
  const hlo_val_t sum = hlo_reduce_all(h, "add", loss);
  return reduction == NN_MEAN ? nn_over(h, sum, n) : sum;
}

/* An int[] argument as |count| numbers: a single entry stands for all, none for |absent|. */
static inline void nn_ints(const op_call_t *c, int i, int count, int64_t absent, int64_t *out) {
  const int64_t *values = NULL;
  const int n = op_ints(c, i, &values);
  for (int d = 0; d < count; d++) out[d] = n == 0 ? absent : values[n == 1 ? 0 : d];
}

#endif /* TTPU_OPS_NN_H_ */
