/* map_math.c: elementwise transcendental functions. Integers compute in the float type of the result, half types in
 * f32 (map.h). Functions without a StableHLO or chlo counterpart are in special.c.
 */
#include "ops/map.h"

#include <string.h>

/* |detail| is the StableHLO op, or a chlo op after '+'. */
static hlo_val_t function_of(hlo_t *h, const op_call_t *c, hlo_val_t x) {
  const char *op = op_detail(c);
  return *op == '+' ? hlo_chlo(h, op + 1, 1, &x) : hlo_un(h, op, x);
}

EMIT(un_float) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, function_of(h, c, x));
}

/* Integers take the way over f64 where XLA's f32 functions miss by more than the last bit: results at integers get
 * compared exactly. */
static hlo_val_t precise_arg(hlo_t *h, const op_call_t *c) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  return map_is_inexact(op_arg_dtype(c, 0)) ? x : hlo_convert(h, x, TTPU_F64);
}

EMIT(un_precise) {
  const hlo_val_t x = precise_arg(h, c);
  op_ret(h, c, 0, function_of(h, c, x));
}

EMIT(atan) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  const bool is_complex = ttpu_dtype_is_complex(hlo_dtype(h, x));
  op_ret(h, c, 0, is_complex ? hlo_chlo(h, "atan", 1, &x) : hlo_atan2(h, x, hlo_like(h, x, 1)));
}

/* log2 and log10: a true division keeps exact powers exact. */
EMIT(log_base) {
  const hlo_val_t x = precise_arg(h, c);
  const double base = strcmp(op_detail(c), "2") == 0 ? M_LN2 : M_LN10;
  const hlo_val_t value = hlo_log(h, x);
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) {
    op_ret(h, c, 0, map_div_k(h, value, base));
    return;
  }
  const hlo_val_t re = map_div_k(h, hlo_real(h, value), base); /* by parts: complex division spoils infinities */
  op_ret(h, c, 0, hlo_complex(h, re, map_div_k(h, hlo_imag(h, value), base)));
}

EMIT(exp2) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, hlo_pow(h, hlo_like(h, x, 2), x));
}

EMIT(sinc) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t turn = map_mul_k(h, x, M_PI);
  const hlo_val_t ratio = hlo_div(h, hlo_sin(h, turn), turn);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "EQ", x, 0), 1, ratio));
}

hlo_val_t map_sigmoid(hlo_t *h, hlo_val_t x) {
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) return hlo_logistic(h, x);
  return map_k_div(h, 1, map_add_k(h, hlo_exp(h, hlo_neg(h, x)), 1));
}

EMIT(sigmoid) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, map_sigmoid(h, x));
}

/* digamma has a pole at zero whose side is the sign of zero. */
hlo_val_t map_digamma(hlo_t *h, hlo_val_t x) {
  const hlo_val_t value = hlo_chlo(h, "digamma", 1, &x);
  const hlo_val_t inf = hlo_like(h, x, INFINITY);
  const hlo_val_t pole = map_copy_sign(h, inf, hlo_neg(h, x));
  return hlo_select(h, map_cmp_k(h, "EQ", x, 0), pole, value);
}

EMIT(digamma) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, map_digamma(h, x));
}

EMIT(mvlgamma) {
  const int64_t p = op_int(c, 1, 1);
  const hlo_val_t x = map_float_arg(h, c, 0);
  hlo_val_t sum = hlo_like(h, x, (double)(p * (p - 1)) / 4 * log(M_PI));
  for (int64_t j = 0; j < p; j++) {
    const hlo_val_t shifted = map_sub_k(h, x, (double)j / 2);
    sum = hlo_add(h, sum, hlo_chlo(h, "lgamma", 1, &shifted));
  }
  op_ret(h, c, 0, sum);
}

/* --- powers -------------------------------------------------------------------------------------------- */

/* base ** exponent for integers by squaring; |state| is (result, base, exponent). */
static void pow_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_reduce_all(h, "or", map_cmp_k(h, "NE", args[2], 0));
}

static void pow_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t one = hlo_const_int(h, hlo_dtype(h, args[2]), 1);
  const hlo_val_t is_odd = map_cmp_k(h, "NE", hlo_and(h, args[2], one), 0);
  const hlo_val_t product = hlo_mul(h, args[0], args[1]);
  results[0] = hlo_select(h, is_odd, product, args[0]);
  results[1] = hlo_mul(h, args[1], args[1]);
  results[2] = hlo_shr_logical(h, args[2], one);
}

/* Negative exponents give 0 except for the bases 1 and -1, as on CPU. */
static hlo_val_t integer_power(hlo_t *h, const op_call_t *c, hlo_val_t base, hlo_val_t exponent) {
  const ttpu_dtype_e t = hlo_dtype(h, base);
  base = map_expand(h, c, base);
  exponent = map_expand(h, c, exponent);
  const bool is_signed = ttpu_dtype_kind(t) == 'i';
  const hlo_val_t is_negative = map_cmp_k(h, "LT", exponent, 0);
  const hlo_val_t count = is_signed ? map_then_k(h, is_negative, 0, exponent) : exponent;
  const hlo_val_t init[3] = {map_expand(h, c, hlo_const_int(h, t, 1)), base, count};
  hlo_val_t state[3];
  hlo_while(h, 3, init, pow_goes_on, pow_step, NULL, state);
  if (!is_signed) return state[0];
  const hlo_val_t is_odd = map_cmp_k(h, "NE", hlo_and(h, exponent, hlo_const_int(h, t, 1)), 0);
  const hlo_val_t alternating = hlo_select(h, is_odd, base, hlo_const_int(h, t, 1)); /* powers of 1 and -1 */
  const hlo_val_t is_unit = map_cmp_k(h, "EQ", hlo_abs(h, base), 1);
  const hlo_val_t inverse = map_else_k(h, is_unit, alternating, 0);
  return hlo_select(h, is_negative, inverse, state[0]);
}

EMIT(pow) {
  const ttpu_dtype_e t = map_wide(op_result_type(c, 0, 1));
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, t, &a, &b);
  if (!map_is_inexact(t)) {
    op_ret(h, c, 0, integer_power(h, c, a, b));
    return;
  }
  hlo_val_t value = hlo_pow(h, a, b);
  if (ttpu_dtype_is_complex(t)) { /* log(0) would make it NaN */
    const hlo_val_t is_zero = map_cmp_k(h, "EQ", a, 0);
    const hlo_val_t vanishes = hlo_and(h, is_zero, map_cmp_k(h, "GT", hlo_real(h, b), 0));
    value = map_then_k(h, vanishes, 0, value);
  }
  op_ret(h, c, 0, value);
}

/* --- two operands -------------------------------------------------------------------------------------- */

/* Scaled by the larger side, so that squares neither overflow nor vanish. */
EMIT(hypot) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, map_wide(op_result_type(c, 0, 1)), &a, &b);
  a = hlo_abs(h, a);
  b = hlo_abs(h, b);
  const hlo_val_t longer = hlo_max(h, a, b);
  const hlo_val_t shorter = hlo_min(h, a, b);
  const hlo_val_t ratio = hlo_div(h, shorter, longer);
  const hlo_val_t length = hlo_mul(h, longer, hlo_sqrt(h, map_add_k(h, hlo_mul(h, ratio, ratio), 1)));
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", longer, 0);
  const hlo_val_t a_is_inf = map_cmp_k(h, "EQ", a, INFINITY);
  const hlo_val_t is_inf = hlo_or(h, a_is_inf, map_cmp_k(h, "EQ", b, INFINITY));
  const hlo_val_t finite = map_then_k(h, is_zero, 0, length);
  op_ret(h, c, 0, map_then_k(h, is_inf, INFINITY, finite));
}

/* x * log(y), zero where x is, NaN where y is; |detail| is the logarithm. */
EMIT(xlog) {
  hlo_val_t x, y;
  map_pair(h, c, 0, 1, map_float_of(c, op_result_type(c, 0, 1)), &x, &y);
  const hlo_val_t product = hlo_mul(h, x, hlo_un(h, op_detail(c), y));
  const hlo_val_t value = map_then_k(h, map_cmp_k(h, "EQ", x, 0), 0, product);
  op_ret(h, c, 0, hlo_select(h, hlo_is_nan(h, y), y, value));
}

hlo_val_t map_log_add_exp(hlo_t *h, hlo_val_t a, hlo_val_t b) {
  if (ttpu_dtype_is_complex(hlo_dtype(h, a))) { /* from the larger real part, whose phase stays as it is */
    const hlo_val_t a_re = hlo_real(h, a);
    const hlo_val_t is_less = hlo_lt(h, a_re, hlo_real(h, b));
    const hlo_val_t low = hlo_select(h, is_less, a, b);
    const hlo_val_t high = hlo_select(h, is_less, b, a);
    const hlo_val_t share = hlo_exp(h, hlo_sub(h, low, high));
    const hlo_val_t sum = hlo_add(h, high, hlo_log1p(h, share));
    return hlo_select(h, map_cmp_k(h, "EQ", hlo_real(h, high), -INFINITY), low, sum);
  }
  const hlo_val_t top = hlo_max(h, a, b);
  const hlo_val_t gap = hlo_neg(h, hlo_abs(h, hlo_sub(h, a, b)));
  const hlo_val_t sum = hlo_add(h, top, hlo_log1p(h, hlo_exp(h, gap)));
  const hlo_val_t is_equal = hlo_eq(h, a, b);
  return hlo_select(h, hlo_and(h, is_equal, map_is_inf(h, a)), a, sum);
}

EMIT(logaddexp) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, map_wide(op_result_type(c, 0, 1)), &a, &b);
  op_ret(h, c, 0, map_log_add_exp(h, a, b));
}

EMIT(logaddexp2) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, map_wide(op_result_type(c, 0, 1)), &a, &b);
  const hlo_val_t top = hlo_max(h, a, b);
  const hlo_val_t gap = hlo_neg(h, hlo_abs(h, hlo_sub(h, a, b)));
  const hlo_val_t tail = hlo_log1p(h, hlo_exp(h, map_mul_k(h, gap, M_LN2)));
  const hlo_val_t sum = hlo_add(h, top, map_div_k(h, tail, M_LN2));
  const hlo_val_t is_equal = hlo_eq(h, a, b);
  op_ret(h, c, 0, hlo_select(h, hlo_and(h, is_equal, map_is_inf(h, a)), a, sum));
}

/* x * 2**n with n an integer-valued operand. */
EMIT(ldexp) {
  hlo_val_t x, n;
  map_pair(h, c, 0, 1, map_float_of(c, op_result_type(c, 0, 1)), &x, &n);
  op_ret(h, c, 0, hlo_mul(h, x, hlo_pow(h, hlo_like(h, n, 2), n)));
}
