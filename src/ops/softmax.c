/* softmax.c: softmax, log softmax, their masked form and gradients; dropout. Attention uses these formulas on blocks.
 */
#include "ops/nn.h"
#include "ops/random.h"

/* A rank-0 operand is a line of one element. */
static hlo_val_t as_line(hlo_t *h, hlo_val_t x) {
  const int64_t one = 1;
  return hlo_rank(h, x) == 0 ? hlo_reshape(h, x, 1, &one) : x;
}
static hlo_val_t as_result(hlo_t *h, const op_call_t *c, hlo_val_t y) {
  return hlo_reshape(h, y, op_result_rank(c, 0), op_result_dims(c, 0));
}

static hlo_val_t minus_max(hlo_t *h, hlo_val_t x, int dim) {
  const hlo_val_t top = nn_top(h, x, dim);
  return hlo_sub(h, x, nn_spread_dim(h, top, x, dim));
}

static hlo_val_t sum_along(hlo_t *h, hlo_val_t x, int dim) {
  return nn_spread_dim(h, hlo_reduce_dim(h, "add", x, dim), x, dim);
}

static hlo_val_t softmax(hlo_t *h, hlo_val_t x, int dim) {
  const hlo_val_t e = hlo_exp(h, minus_max(h, x, dim));
  return hlo_div(h, e, sum_along(h, e, dim));
}

void op_emit_softmax(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = as_line(h, nn_tensor(h, c, 0));
  op_ret(h, c, 0, as_result(h, c, softmax(h, x, op_dim(c, 1, hlo_rank(h, x)))));
}

void op_emit_log_softmax(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = as_line(h, nn_tensor(h, c, 0));
  const int dim = op_dim(c, 1, hlo_rank(h, x));
  const hlo_val_t away = minus_max(h, x, dim), sum = hlo_reduce_dim(h, "add", hlo_exp(h, away), dim);
  op_ret(h, c, 0, as_result(h, c, hlo_sub(h, away, nn_spread_dim(h, hlo_log(h, sum), away, dim))));
}

/* y * (dy - sum(dy * y)) */
static hlo_val_t softmax_back(hlo_t *h, hlo_val_t dy, hlo_val_t y, int dim) {
  const hlo_val_t along = sum_along(h, hlo_mul(h, dy, y), dim);
  return hlo_mul(h, y, hlo_sub(h, dy, along));
}

void op_emit_softmax_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = as_line(h, nn_tensor(h, c, 0)), y = as_line(h, op_tensor_as(h, c, 1, hlo_dtype(h, dy)));
  op_ret(h, c, 0, as_result(h, c, softmax_back(h, dy, y, op_dim(c, 2, hlo_rank(h, dy)))));
}

void op_emit_log_softmax_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = as_line(h, nn_tensor(h, c, 0)), y = as_line(h, op_tensor_as(h, c, 1, hlo_dtype(h, dy)));
  const hlo_val_t total = sum_along(h, dy, op_dim(c, 2, hlo_rank(h, dy))), share = hlo_mul(h, hlo_exp(h, y), total);
  op_ret(h, c, 0, as_result(h, c, hlo_sub(h, dy, share)));
}

/* --- masked: true hides an element ----------------------------------------------------------------------------- */

/* The mask in x's dims. Type 0 is [L, L] over (batch, heads, L, L), type 1 is [batch, L], else x's own dims. */
static hlo_val_t mask_like(hlo_t *h, hlo_val_t mask, hlo_val_t x, int64_t type) {
  mask = hlo_convert(h, mask, TTPU_BOOL);
  if (type == 1 && hlo_rank(h, mask) == 2 && hlo_rank(h, x) == 4) {
    const int map[2] = {0, 3};
    return hlo_broadcast_in(h, mask, 4, hlo_dims(h, x), map);
  }
  return hlo_expand_like(h, mask, x);
}

/* self, mask, dim, mask_type. A row that is hidden entirely is NaN, as on CPU. */
void op_emit_masked_softmax(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = as_line(h, nn_tensor(h, c, 0));
  const int rank = hlo_rank(h, x), dim = op_has(c, 2) ? op_dim(c, 2, rank) : rank - 1;
  const hlo_val_t mask = mask_like(h, op_tensor(h, c, 1), x, op_int(c, 3, 2)), hidden = hlo_lowest(h, hlo_dtype(h, x));
  op_ret(h, c, 0, as_result(h, c, softmax(h, hlo_select(h, mask, hidden, x), dim)));
}

/* grad, output, mask, dim */
void op_emit_masked_softmax_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = as_line(h, nn_tensor(h, c, 0)), y = as_line(h, op_tensor_as(h, c, 1, hlo_dtype(h, dy)));
  const int rank = hlo_rank(h, dy), dim = op_has(c, 3) ? op_dim(c, 3, rank) : rank - 1;
  const hlo_val_t shown = hlo_not(h, mask_like(h, op_tensor(h, c, 2), dy, 2));
  const hlo_val_t part = nn_keep(h, shown, dy), dx = softmax_back(h, part, nn_keep(h, shown, y), dim);
  op_ret(h, c, 0, as_result(h, c, dx));
}

/* --- dropout ----------------------------------------------------------------------------------------------------- */

/* input, p, train -> output, mask. The mask keeps an element with probability 1 - p; p = 1 keeps none. */
void op_emit_dropout(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = nn_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  if (!op_bool(c, 2, true) || hlo_numel(h, x) == 0) {
    op_ret(h, c, 0, x);
    if (op_result_wanted(c, 1)) nn_ret_full(h, c, 1, 1);
    return;
  }
  const hlo_val_t p = op_scalar(h, c, 1, TTPU_F32);
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t uniform = random_half_open(h, state, TTPU_F32, hlo_rank(h, x), hlo_dims(h, x)),
                  keep = hlo_ge(h, uniform, p);
  const hlo_val_t rest = nn_from(h, 1, op_scalar(h, c, 1, hlo_dtype(h, x))),
                  all = hlo_le(h, rest, hlo_like(h, rest, 0));
  const hlo_val_t scale = hlo_select(h, all, hlo_like(h, rest, 0), nn_reciprocal(h, rest));
  op_ret(h, c, 0, nn_keep(h, keep, hlo_mul(h, x, scale)));
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, keep);
}

/* grad, mask, scale */
void op_emit_dropout_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0), keep = op_tensor_as(h, c, 1, hlo_dtype(h, dy));
  const hlo_val_t scale = op_scalar(h, c, 2, hlo_dtype(h, dy)), kept = hlo_mul(h, dy, keep);
  op_ret(h, c, 0, hlo_mul(h, kept, scale));
}
