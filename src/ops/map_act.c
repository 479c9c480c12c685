/* map_act.c: activations and their gradients. |g| is the gradient of the output, |x| the input, |y| the output.
 * Scalars are runtime values (op_scalar); everything computes in map.h's wide type.
 */
#include "ops/map.h"

#include <string.h>

/* Two tensor arguments in their common wide type. */
static void grad_pair(hlo_t *h, const op_call_t *c, int i, int j, hlo_val_t *a, hlo_val_t *b) {
  map_pair(h, c, i, j, map_wide(op_result_type(c, i, j)), a, b);
}

static hlo_val_t scalar_like(hlo_t *h, const op_call_t *c, int i, hlo_val_t x) {
  return op_scalar(h, c, i, hlo_dtype(h, x));
}

/* --- rectifiers ---------------------------------------------------------------------------------------- */

EMIT(relu) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, map_max_k(h, x, 0));
}

EMIT(leaky_relu) {
  const hlo_val_t x = map_arg(h, c, 0);
  const hlo_val_t scaled = hlo_mul(h, x, scalar_like(h, c, 1, x));
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "GT", x, 0), x, scaled));
}

EMIT(leaky_relu_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t scaled = hlo_mul(h, g, scalar_like(h, c, 2, x));
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "GT", x, 0), g, scaled));
}

EMIT(prelu) {
  hlo_val_t x, weight;
  grad_pair(h, c, 0, 1, &x, &weight);
  const hlo_val_t scaled = hlo_mul(h, x, weight);
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "GT", x, 0), x, scaled));
}

EMIT(prelu_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t weight = op_tensor_as(h, c, 2, hlo_dtype(h, x));
  const hlo_val_t is_positive = map_cmp_k(h, "GT", x, 0);
  const hlo_val_t scaled = hlo_mul(h, g, weight);
  op_ret(h, c, 0, hlo_select(h, is_positive, g, scaled));
  op_ret(h, c, 1, map_then_k(h, is_positive, 0, hlo_mul(h, g, x)));
}

EMIT(threshold) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const hlo_val_t limit = scalar_like(h, c, 1, x);
  const hlo_val_t value = scalar_like(h, c, 2, x);
  op_ret(h, c, 0, hlo_select(h, hlo_le(h, x, limit), value, x));
}

EMIT(threshold_backward) {
  hlo_val_t g, x;
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &g, &x);
  const hlo_val_t is_low = hlo_le(h, x, scalar_like(h, c, 2, x));
  op_ret(h, c, 0, map_then_k(h, is_low, 0, g));
}

EMIT(hardtanh) {
  hlo_val_t x = op_tensor(h, c, 0);
  x = hlo_max(h, x, scalar_like(h, c, 1, x));
  op_ret(h, c, 0, hlo_min(h, x, scalar_like(h, c, 2, x)));
}

EMIT(hardtanh_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t is_low = hlo_le(h, x, scalar_like(h, c, 2, x));
  const hlo_val_t is_out = hlo_or(h, is_low, hlo_ge(h, x, scalar_like(h, c, 3, x)));
  op_ret(h, c, 0, map_then_k(h, is_out, 0, g));
}

/* True in [-lambda, lambda]; NaN is outside. */
static hlo_val_t is_shrunk(hlo_t *h, hlo_val_t x, hlo_val_t lambda) {
  const hlo_val_t above = hlo_ge(h, x, hlo_neg(h, lambda));
  return hlo_and(h, above, hlo_le(h, x, lambda));
}

EMIT(hardshrink) {
  const hlo_val_t x = map_arg(h, c, 0);
  op_ret(h, c, 0, map_then_k(h, is_shrunk(h, x, scalar_like(h, c, 1, x)), 0, x));
}

EMIT(softshrink) {
  const hlo_val_t x = map_arg(h, c, 0);
  const hlo_val_t lambda = scalar_like(h, c, 1, x);
  const hlo_val_t is_high = hlo_gt(h, x, lambda);
  const hlo_val_t is_low = hlo_lt(h, x, hlo_neg(h, lambda));
  const hlo_val_t down = hlo_sub(h, x, lambda);
  const hlo_val_t up = hlo_add(h, x, lambda);
  const hlo_val_t rest = hlo_select(h, is_low, up, map_mul_k(h, x, 0));
  op_ret(h, c, 0, hlo_select(h, is_high, down, rest));
}

/* Of both shrink functions. */
EMIT(shrink_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  op_ret(h, c, 0, map_then_k(h, is_shrunk(h, x, scalar_like(h, c, 2, x)), 0, g));
}

/* clamp(x + 3, 0, 6) / 6 */
static hlo_val_t hard_gate(hlo_t *h, hlo_val_t x) {
  const hlo_val_t clamped = map_min_k(h, map_max_k(h, map_add_k(h, x, 3), 0), 6);
  return map_div_k(h, clamped, 6);
}

EMIT(hardsigmoid) {
  const hlo_val_t x = map_arg(h, c, 0);
  op_ret(h, c, 0, hard_gate(h, x));
}

EMIT(hardsigmoid_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t is_inside = map_cmp_k(h, "LT", hlo_abs(h, x), 3);
  op_ret(h, c, 0, map_else_k(h, is_inside, map_div_k(h, g, 6), 0));
}

EMIT(hardswish) {
  const hlo_val_t x = map_arg(h, c, 0);
  op_ret(h, c, 0, hlo_mul(h, x, hard_gate(h, x)));
}

EMIT(hardswish_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t inner = hlo_mul(h, g, map_add_k(h, map_div_k(h, x, 3), 0.5));
  const hlo_val_t right = hlo_select(h, map_cmp_k(h, "LT", x, 3), inner, g);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "LE", x, -3), 0, right));
}

/* --- exponential units ------------------------------------------------------------------------------------ */

/* elu(alpha, scale, input_scale): scale * (x > 0 ? x : alpha * expm1(x * input_scale)) */
EMIT(elu) {
  const hlo_val_t x = map_arg(h, c, 0);
  const hlo_val_t alpha = scalar_like(h, c, 1, x);
  const hlo_val_t scale = scalar_like(h, c, 2, x);
  const hlo_val_t grown = hlo_expm1(h, hlo_mul(h, x, scalar_like(h, c, 3, x)));
  const hlo_val_t left = hlo_mul(h, grown, hlo_mul(h, alpha, scale));
  const hlo_val_t right = hlo_mul(h, x, scale);
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "LE", x, 0), left, right));
}

EMIT(elu_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 5, &g, &x);
  const hlo_val_t alpha = scalar_like(h, c, 1, x);
  const hlo_val_t scale = scalar_like(h, c, 2, x);
  const hlo_val_t input_scale = scalar_like(h, c, 3, x);
  const hlo_val_t height = hlo_mul(h, alpha, scale);
  const bool is_result = op_bool(c, 4, false);
  const hlo_val_t curve =
      is_result ? hlo_add(h, x, height) : hlo_mul(h, hlo_exp(h, hlo_mul(h, x, input_scale)), height);
  const hlo_val_t left = hlo_mul(h, g, hlo_mul(h, curve, input_scale));
  const hlo_val_t right = hlo_mul(h, g, scale);
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "LE", x, 0), left, right));
}

EMIT(celu) {
  const hlo_val_t x = map_arg(h, c, 0);
  const hlo_val_t alpha = scalar_like(h, c, 1, x);
  const hlo_val_t left = hlo_mul(h, alpha, hlo_expm1(h, hlo_div(h, x, alpha)));
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "LE", x, 0), left, x));
}

/* Linear above |threshold|, where log1p(exp(z)) would be z or overflow. */
EMIT(softplus) {
  const hlo_val_t x = map_arg(h, c, 0);
  const hlo_val_t beta = scalar_like(h, c, 1, x);
  const hlo_val_t z = hlo_mul(h, x, beta);
  const hlo_val_t is_linear = hlo_gt(h, z, scalar_like(h, c, 2, x));
  const hlo_val_t curve = hlo_div(h, hlo_log1p(h, hlo_exp(h, z)), beta);
  op_ret(h, c, 0, hlo_select(h, is_linear, x, curve));
}

EMIT(softplus_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t z = hlo_mul(h, x, scalar_like(h, c, 2, x));
  const hlo_val_t is_linear = hlo_gt(h, z, scalar_like(h, c, 3, x));
  const hlo_val_t curve = hlo_mul(h, g, hlo_logistic(h, z));
  op_ret(h, c, 0, hlo_select(h, is_linear, g, curve));
}

/* min(x, 0) - log1p(exp(-|x|)); the second result is the exponential (empty on devices that do not keep it). */
EMIT(log_sigmoid) {
  const hlo_val_t x = map_arg(h, c, 0);
  const hlo_val_t fading = hlo_exp(h, hlo_neg(h, hlo_abs(h, x)));
  const hlo_val_t base = map_min_k(h, x, 0);
  op_ret(h, c, 0, hlo_sub(h, base, hlo_log1p(h, fading)));
  if (!op_result_wanted(c, 1)) return;
  const bool is_kept = op_result_rank(c, 1) == hlo_rank(h, x) &&
                       ttpu_dims_numel(op_result_rank(c, 1), op_result_dims(c, 1)) == hlo_numel(h, x);
  op_ret(h, c, 1, is_kept ? fading : hlo_full(h, op_result_dtype(c, 1), op_result_rank(c, 1), op_result_dims(c, 1), 0));
}

/* From the input alone, so that it does not matter which device made the buffer. */
EMIT(log_sigmoid_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  op_ret(h, c, 0, hlo_mul(h, g, hlo_logistic(h, hlo_neg(h, x))));
}

/* --- smooth gates ------------------------------------------------------------------------------------------ */

EMIT(silu) {
  const hlo_val_t x = map_arg(h, c, 0);
  op_ret(h, c, 0, hlo_mul(h, x, map_sigmoid(h, x)));
}

/* g * s * (1 + x * (1 - s)) */
EMIT(silu_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t s = map_sigmoid(h, x);
  const hlo_val_t slope = map_add_k(h, hlo_mul(h, x, map_k_sub(h, 1, s)), 1);
  op_ret(h, c, 0, hlo_mul(h, hlo_mul(h, g, s), slope));
}

EMIT(mish) {
  const hlo_val_t x = map_arg(h, c, 0);
  op_ret(h, c, 0, hlo_mul(h, x, hlo_tanh(h, hlo_log1p(h, hlo_exp(h, x)))));
}

EMIT(mish_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t gate = hlo_tanh(h, hlo_log1p(h, hlo_exp(h, x)));
  const hlo_val_t slope = map_k_sub(h, 1, hlo_mul(h, gate, gate));
  const hlo_val_t change = hlo_mul(h, hlo_mul(h, x, hlo_logistic(h, x)), slope);
  op_ret(h, c, 0, hlo_mul(h, g, hlo_add(h, gate, change)));
}

/* The argument of gelu's tanh form, sqrt(2/pi) * (x + 0.044715 * x**3), given x**2. */
static const double GELU_SCALE = 0.79788456080286535588, GELU_CUBE = 0.044715;

EMIT(gelu) {
  const hlo_val_t x = map_arg(h, c, 0);
  hlo_val_t gate;
  if (strcmp(op_string(c, 1), "tanh") == 0) {
    const hlo_val_t bent = map_add_k(h, map_mul_k(h, hlo_mul(h, x, x), GELU_CUBE), 1);
    gate = hlo_tanh(h, hlo_mul(h, map_mul_k(h, x, GELU_SCALE), bent));
  } else {
    const hlo_val_t z = map_mul_k(h, x, M_SQRT1_2);
    gate = hlo_chlo(h, "erf", 1, &z);
  }
  const hlo_val_t half = map_mul_k(h, x, 0.5);
  op_ret(h, c, 0, hlo_mul(h, half, map_add_k(h, gate, 1)));
}

/* g * (Phi(x) + x * Phi'(x)) with Phi(x) = gelu(x) / x. */
EMIT(gelu_backward) {
  hlo_val_t g, x, phi, slope;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t square = hlo_mul(h, x, x);
  if (strcmp(op_string(c, 2), "tanh") == 0) {
    const hlo_val_t bent = map_add_k(h, map_mul_k(h, square, GELU_CUBE), 1);
    const hlo_val_t gate = hlo_tanh(h, hlo_mul(h, map_mul_k(h, x, GELU_SCALE), bent));
    const hlo_val_t inner = map_mul_k(h, map_add_k(h, map_mul_k(h, square, 3 * GELU_CUBE), 1), GELU_SCALE);
    phi = map_mul_k(h, map_add_k(h, gate, 1), 0.5);
    slope = hlo_mul(h, map_mul_k(h, map_k_sub(h, 1, hlo_mul(h, gate, gate)), 0.5), inner);
  } else {
    const hlo_val_t z = map_mul_k(h, x, M_SQRT1_2);
    phi = map_mul_k(h, map_add_k(h, hlo_chlo(h, "erf", 1, &z), 1), 0.5);
    slope = map_mul_k(h, hlo_exp(h, map_mul_k(h, square, -0.5)), M_2_SQRTPI * M_SQRT1_2 * 0.5);
  }
  op_ret(h, c, 0, hlo_mul(h, g, hlo_add(h, phi, hlo_mul(h, x, slope))));
}

static hlo_val_t conjugate(hlo_t *h, hlo_val_t x) {
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) return x;
  const hlo_val_t re = hlo_real(h, x);
  return hlo_complex(h, re, hlo_neg(h, hlo_imag(h, x)));
}

EMIT(sigmoid_backward) {
  hlo_val_t g, y;
  grad_pair(h, c, 0, 1, &g, &y);
  y = conjugate(h, y);
  op_ret(h, c, 0, hlo_mul(h, g, hlo_mul(h, map_k_sub(h, 1, y), y)));
}

EMIT(tanh_backward) {
  hlo_val_t g, y;
  grad_pair(h, c, 0, 1, &g, &y);
  y = conjugate(h, y);
  op_ret(h, c, 0, hlo_mul(h, g, map_k_sub(h, 1, hlo_mul(h, y, y))));
}

/* log(x / (1 - x)) with x held in [eps, 1 - eps] when eps is given and not negative. */
EMIT(logit) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  hlo_val_t z = x;
  if (op_has(c, 1)) {
    const hlo_val_t eps = scalar_like(h, c, 1, x);
    const hlo_val_t raised = hlo_max(h, x, eps);
    const hlo_val_t held = hlo_min(h, raised, map_k_sub(h, 1, eps));
    z = hlo_select(h, map_cmp_k(h, "LT", eps, 0), x, held);
  }
  op_ret(h, c, 0, hlo_log(h, hlo_div(h, z, map_k_sub(h, 1, z))));
}

/* g / (x * (1 - x)); outside of the bounds 0, or NaN when there is no eps. */
EMIT(logit_backward) {
  hlo_val_t g, x;
  grad_pair(h, c, 0, 1, &g, &x);
  const hlo_val_t slope = hlo_div(h, g, hlo_mul(h, x, map_k_sub(h, 1, x)));
  const hlo_val_t eps = op_has(c, 2) ? scalar_like(h, c, 2, x) : hlo_like(h, x, -1);
  const hlo_val_t is_free = map_cmp_k(h, "LT", eps, 0);
  const hlo_val_t low = map_then_k(h, is_free, 0, eps);
  const hlo_val_t is_low = hlo_lt(h, x, low);
  const hlo_val_t is_out = hlo_or(h, is_low, hlo_gt(h, x, map_k_sub(h, 1, low)));
  const hlo_val_t outside = map_then_k(h, is_free, NAN, hlo_like(h, x, 0));
  op_ret(h, c, 0, hlo_select(h, is_out, outside, slope));
}

/* --- gated linear unit: the input's halves along |dim| are a and b, the output a * sigmoid(b) --------------- */

static void halves(hlo_t *h, hlo_val_t x, int dim, hlo_val_t *a, hlo_val_t *b) {
  const int64_t size = hlo_dim(h, x, dim);
  *a = hlo_slice_dim(h, x, dim, 0, size / 2, 1);
  *b = hlo_slice_dim(h, x, dim, size / 2, size, 1);
}

EMIT(glu) {
  hlo_val_t a, b;
  const hlo_val_t x = map_arg(h, c, 0);
  halves(h, x, op_dim(c, 1, hlo_rank(h, x)), &a, &b);
  op_ret(h, c, 0, hlo_mul(h, a, hlo_logistic(h, b)));
}

EMIT(glu_backward) {
  hlo_val_t g, x, a, b;
  grad_pair(h, c, 0, 1, &g, &x);
  const int dim = op_dim(c, 2, hlo_rank(h, x));
  halves(h, x, dim, &a, &b);
  const hlo_val_t s = hlo_logistic(h, b);
  const hlo_val_t through = hlo_mul(h, g, s);
  const hlo_val_t raised = hlo_mul(h, through, a);
  const hlo_val_t parts[2] = {through, hlo_mul(h, raised, map_k_sub(h, 1, s))};
  op_ret(h, c, 0, hlo_concat(h, 2, parts, dim));
}

/* (glu, x, dx): da * s + glu * (1 - s) * db */
EMIT(glu_jvp) {
  hlo_val_t x, dx, a, b, da, db;
  grad_pair(h, c, 1, 2, &x, &dx);
  const int dim = op_dim(c, 3, hlo_rank(h, x));
  const hlo_val_t y = op_tensor_as(h, c, 0, hlo_dtype(h, x));
  halves(h, x, dim, &a, &b);
  halves(h, dx, dim, &da, &db);
  const hlo_val_t s = hlo_logistic(h, b);
  const hlo_val_t change = hlo_mul(h, hlo_mul(h, y, map_k_sub(h, 1, s)), db);
  op_ret(h, c, 0, hlo_add(h, hlo_mul(h, da, s), change));
}

/* The derivative of glu_backward: (grad_x, grad_glu, x, dgrad_glu, dx). */
EMIT(glu_backward_jvp) {
  hlo_val_t g, x, dg, dx, a, b, da, db;
  grad_pair(h, c, 1, 2, &g, &x);
  dg = op_tensor_as(h, c, 3, hlo_dtype(h, x));
  dx = op_tensor_as(h, c, 4, hlo_dtype(h, x));
  const int dim = op_dim(c, 5, hlo_rank(h, x));
  halves(h, x, dim, &a, &b);
  halves(h, dx, dim, &da, &db);
  const hlo_val_t s = hlo_logistic(h, b);
  const hlo_val_t slope = hlo_mul(h, s, map_k_sub(h, 1, s));
  const hlo_val_t ds = hlo_mul(h, slope, db);
  const hlo_val_t dslope = hlo_mul(h, ds, map_k_sub(h, 1, map_mul_k(h, s, 2)));
  const hlo_val_t dg_s = hlo_mul(h, dg, s);
  const hlo_val_t first = hlo_add(h, dg_s, hlo_mul(h, g, ds));
  const hlo_val_t by_grad = hlo_mul(h, hlo_mul(h, dg, a), slope);
  const hlo_val_t by_a = hlo_mul(h, hlo_mul(h, g, da), slope);
  const hlo_val_t by_b = hlo_mul(h, hlo_mul(h, g, a), dslope);
  const hlo_val_t parts[2] = {first, hlo_add(h, hlo_add(h, by_grad, by_a), by_b)};
  op_ret(h, c, 0, hlo_concat(h, 2, parts, dim));
}
