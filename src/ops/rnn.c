/* rnn.c: the pointwise part of LSTM and GRU cells; the products with the weights are operators of their own.
 * The workspace keeps what the gradient needs, in the layout of PyTorch's fused cells.
 */
#include "ops/nn.h"

/* Part |k| of |n| equal ones along dimension 1. */
static hlo_val_t part(hlo_t *h, hlo_val_t x, int k, int n) {
  const int64_t size = hlo_dim(h, x, 1) / n;
  return hlo_slice_dim(h, x, 1, k * size, (k + 1) * size, 1);
}

/* Argument |i| plus the bias |bias_arg|, in the accumulation type. */
static hlo_val_t gates(hlo_t *h, const op_call_t *c, int i, int bias_arg) {
  const hlo_val_t g = nn_tensor(h, c, i);
  return op_has(c, bias_arg) ? hlo_add(h, g, op_tensor_as(h, c, bias_arg, hlo_dtype(h, g))) : g;
}

/* dy * y * (1 - y), and dy * (1 - y^2): through a logistic function and a tanh of value y. */
static hlo_val_t through_logistic(hlo_t *h, hlo_val_t dy, hlo_val_t y) {
  const hlo_val_t slope = hlo_mul(h, y, nn_from(h, 1, y));
  return hlo_mul(h, dy, slope);
}
static hlo_val_t through_tanh(hlo_t *h, hlo_val_t dy, hlo_val_t y) {
  return hlo_mul(h, dy, nn_from(h, 1, nn_square(h, y)));
}

static hlo_val_t sum_batch(hlo_t *h, hlo_val_t x) { return hlo_reduce_dim(h, "add", x, 0); }

/* input_gates, hidden_gates, cx, input_bias, hidden_bias -> hy, cy, workspace (gates i, f, g, o after activation) */
void op_emit_lstm_cell(hlo_t *h, const op_call_t *c) {
  const hlo_val_t from_input = gates(h, c, 0, 3), from_hidden = gates(h, c, 1, 4), cx = nn_tensor(h, c, 2);
  const hlo_val_t all = hlo_add(h, from_input, from_hidden);
  const hlo_val_t i = hlo_logistic(h, part(h, all, 0, 4)), f = hlo_logistic(h, part(h, all, 1, 4));
  const hlo_val_t g = hlo_tanh(h, part(h, all, 2, 4)), o = hlo_logistic(h, part(h, all, 3, 4));
  const hlo_val_t kept = hlo_mul(h, f, cx), cy = hlo_add(h, kept, hlo_mul(h, i, g));
  op_ret(h, c, 0, hlo_mul(h, o, hlo_tanh(h, cy)));
  op_ret(h, c, 1, cy);
  const hlo_val_t saved[4] = {i, f, g, o};
  op_ret(h, c, 2, hlo_concat(h, 4, saved, 1));
}

/* grad_hy, grad_cy, cx, cy, workspace, has_bias -> grad_gates, grad_cx, grad_bias */
void op_emit_lstm_cell_backward(hlo_t *h, const op_call_t *c) {
  if (!op_result_wanted(c, 0)) return;
  const hlo_val_t saved = nn_tensor(h, c, 4), cx = nn_tensor(h, c, 2), t = hlo_tanh(h, nn_tensor(h, c, 3));
  const hlo_val_t i = part(h, saved, 0, 4), f = part(h, saved, 1, 4), g = part(h, saved, 2, 4),
                  o = part(h, saved, 3, 4);
  const hlo_val_t dh = op_has(c, 0) ? nn_tensor(h, c, 0) : hlo_full_like(h, cx, 0);
  hlo_val_t dc = through_tanh(h, hlo_mul(h, dh, o), t);
  if (op_has(c, 1)) dc = hlo_add(h, dc, nn_tensor(h, c, 1));
  hlo_val_t grads[4];
  grads[0] = through_logistic(h, hlo_mul(h, dc, g), i);
  grads[1] = through_logistic(h, hlo_mul(h, dc, cx), f);
  grads[2] = through_tanh(h, hlo_mul(h, dc, i), g);
  grads[3] = through_logistic(h, hlo_mul(h, dh, t), o);
  const hlo_val_t all = hlo_concat(h, 4, grads, 1);
  op_ret(h, c, 0, all);
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, hlo_mul(h, dc, f));
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, sum_batch(h, all));
}

/* input_gates, hidden_gates, hx, input_bias, hidden_bias -> hy, workspace (r, z, n, hx, hidden part of n) */
void op_emit_gru_cell(hlo_t *h, const op_call_t *c) {
  const hlo_val_t in = gates(h, c, 0, 3), hidden = gates(h, c, 1, 4), hx = nn_tensor(h, c, 2);
  const hlo_val_t r_in = part(h, in, 0, 3), z_in = part(h, in, 1, 3), n_in = part(h, in, 2, 3);
  const hlo_val_t r = hlo_logistic(h, hlo_add(h, r_in, part(h, hidden, 0, 3)));
  const hlo_val_t z = hlo_logistic(h, hlo_add(h, z_in, part(h, hidden, 1, 3)));
  const hlo_val_t n_hidden = part(h, hidden, 2, 3), n = hlo_tanh(h, hlo_add(h, n_in, hlo_mul(h, r, n_hidden)));
  const hlo_val_t away = hlo_sub(h, hx, n);
  op_ret(h, c, 0, hlo_add(h, n, hlo_mul(h, z, away)));
  const hlo_val_t saved[5] = {r, z, n, hx, n_hidden};
  op_ret(h, c, 1, hlo_concat(h, 5, saved, 1));
}

/* grad_hy, workspace, has_bias -> grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias */
void op_emit_gru_cell_backward(hlo_t *h, const op_call_t *c) {
  const hlo_val_t dy = nn_tensor(h, c, 0), saved = op_tensor_as(h, c, 1, hlo_dtype(h, dy));
  const hlo_val_t r = part(h, saved, 0, 5), z = part(h, saved, 1, 5), n = part(h, saved, 2, 5);
  const hlo_val_t hx = part(h, saved, 3, 5), n_hidden = part(h, saved, 4, 5);
  const hlo_val_t dz = through_logistic(h, hlo_mul(h, dy, hlo_sub(h, hx, n)), z);
  const hlo_val_t dn = through_tanh(h, hlo_mul(h, dy, nn_from(h, 1, z)), n);
  const hlo_val_t dr = through_logistic(h, hlo_mul(h, dn, n_hidden), r);
  const hlo_val_t to_input[3] = {dr, dz, dn}, to_hidden[3] = {dr, dz, hlo_mul(h, dn, r)};
  const hlo_val_t input = hlo_concat(h, 3, to_input, 1), hidden = hlo_concat(h, 3, to_hidden, 1);
  op_ret(h, c, 0, input);
  op_ret(h, c, 1, hidden);
  if (op_result_wanted(c, 2)) op_ret(h, c, 2, hlo_mul(h, dy, z));
  if (op_result_wanted(c, 3)) op_ret(h, c, 3, sum_batch(h, input));
  if (op_result_wanted(c, 4)) op_ret(h, c, 4, sum_batch(h, hidden));
}
