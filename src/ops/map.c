/* map.c: elementwise arithmetic, comparison, bits, rounding, selection and filling.
 * Promotion is torch.result_type's, the compute type is map.h's. Transcendental functions are in map_math.c,
 * activations and their gradients in map_act.c, special functions in special.c.
 */
#include "ops/map.h"

#include <float.h>
#include <string.h>

/* --- one operand --------------------------------------------------------------------------------------- */

/* Same type in and out; |detail| is the StableHLO op. */
EMIT(un_same) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, hlo_un(h, op_detail(c), x));
}

/* Rounding: integers are their own value. */
EMIT(round_op) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, ttpu_dtype_is_float(hlo_dtype(h, x)) ? hlo_un(h, op_detail(c), x) : x);
}

hlo_val_t map_truncate(hlo_t *h, hlo_val_t x) {
  if (!ttpu_dtype_is_float(hlo_dtype(h, x))) return x;
  const hlo_val_t up = hlo_ceil(h, x);
  const hlo_val_t down = hlo_floor(h, x);
  return hlo_select(h, map_cmp_k(h, "LT", x, 0), up, down);
}

EMIT(trunc) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, map_truncate(h, x));
}

EMIT(frac) {
  const hlo_val_t x = map_arg(h, c, 0);
  op_ret(h, c, 0, hlo_sub(h, x, map_truncate(h, x)));
}

EMIT(round_decimals) {
  const int64_t decimals = op_int(c, 1, 0);
  const hlo_val_t x = map_arg(h, c, 0);
  if (!ttpu_dtype_is_float(hlo_dtype(h, x)) || decimals == 0) {
    op_ret(h, c, 0, decimals == 0 && ttpu_dtype_is_float(hlo_dtype(h, x)) ? hlo_round(h, x) : x);
    return;
  }
  const double scale = pow(10, (double)(decimals < 0 ? -decimals : decimals));
  const hlo_val_t scaled = decimals > 0 ? map_mul_k(h, x, scale) : map_div_k(h, x, scale);
  const hlo_val_t rounded = hlo_round(h, scaled);
  op_ret(h, c, 0, decimals > 0 ? map_div_k(h, rounded, scale) : map_mul_k(h, rounded, scale));
}

EMIT(abs) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, hlo_abs(h, x));
}

EMIT(neg) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, hlo_neg(h, x));
}

/* (x > 0) - (x < 0): NaN gives 0, as on CPU. */
EMIT(sign) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const ttpu_dtype_e t = hlo_dtype(h, x);
  if (t == TTPU_BOOL) {
    op_ret(h, c, 0, x);
    return;
  }
  const hlo_val_t is_positive = map_cmp_k(h, "GT", x, 0);
  const hlo_val_t positive = hlo_convert(h, is_positive, t);
  const hlo_val_t is_negative = map_cmp_k(h, "LT", x, 0);
  op_ret(h, c, 0, hlo_sub(h, positive, hlo_convert(h, is_negative, t)));
}

EMIT(sgn) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) {
    op_emit_sign(h, c);
    return;
  }
  const hlo_val_t size = hlo_abs(h, x);
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", size, 0);
  const hlo_val_t re = hlo_div(h, hlo_real(h, x), size);
  const hlo_val_t im = hlo_div(h, hlo_imag(h, x), size);
  op_ret(h, c, 0, map_then_k(h, is_zero, 0, hlo_complex(h, re, im)));
}

EMIT(reciprocal) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, map_k_div(h, 1, x));
}

EMIT(conj) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) {
    op_ret(h, c, 0, x);
    return;
  }
  const hlo_val_t re = hlo_real(h, x);
  op_ret(h, c, 0, hlo_complex(h, re, hlo_neg(h, hlo_imag(h, x))));
}

/* The phase: pi for negative real numbers, NaN stays. */
EMIT(angle) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  if (ttpu_dtype_is_complex(hlo_dtype(h, x))) {
    const hlo_val_t im = hlo_imag(h, x);
    op_ret(h, c, 0, hlo_atan2(h, im, hlo_real(h, x)));
    return;
  }
  const hlo_val_t is_negative = map_cmp_k(h, "LT", x, 0);
  const hlo_val_t phase = map_then_k(h, is_negative, M_PI, hlo_like(h, x, 0));
  op_ret(h, c, 0, hlo_select(h, hlo_is_nan(h, x), x, phase));
}

EMIT(scale_by) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, map_mul_k(h, x, strcmp(op_detail(c), "deg2rad") == 0 ? M_PI / 180 : 180 / M_PI));
}

/* --- predicates ---------------------------------------------------------------------------------------- */

hlo_val_t map_sign_bit(hlo_t *h, hlo_val_t x) {
  const ttpu_dtype_e t = hlo_dtype(h, x);
  if (!ttpu_dtype_is_float(t)) return map_cmp_k(h, "LT", x, 0);
  const int64_t bytes = ttpu_dtype_bytes(t);
  const ttpu_dtype_e bits = bytes == 8 ? TTPU_I64 : bytes == 4 ? TTPU_I32 : bytes == 2 ? TTPU_I16 : TTPU_I8;
  return map_cmp_k(h, "LT", hlo_bitcast(h, x, bits), 0);
}

hlo_val_t map_is_inf(hlo_t *h, hlo_val_t x) { return map_cmp_k(h, "EQ", hlo_abs(h, x), INFINITY); }

EMIT(signbit) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (ttpu_dtype_kind(hlo_dtype(h, x)) == 'f' || ttpu_dtype_kind(hlo_dtype(h, x)) == 'i') {
    op_ret(h, c, 0, map_sign_bit(h, x));
  } else {
    op_ret(h, c, 0, hlo_const_int(h, TTPU_BOOL, 0));
  }
}

EMIT(isnan) {
  const hlo_val_t x = op_tensor(h, c, 0);
  op_ret(h, c, 0, map_is_inexact(hlo_dtype(h, x)) ? hlo_is_nan(h, x) : hlo_const_int(h, TTPU_BOOL, 0));
}

/* isinf, isposinf, isneginf; |detail| is the sign asked for, "" for both. */
EMIT(isinf) {
  const char *sign = op_detail(c);
  const hlo_val_t x = op_tensor(h, c, 0);
  const ttpu_dtype_e t = hlo_dtype(h, x);
  if (ttpu_dtype_is_complex(t)) {
    const hlo_val_t re = map_is_inf(h, hlo_real(h, x));
    op_ret(h, c, 0, hlo_or(h, re, map_is_inf(h, hlo_imag(h, x))));
  } else if (!ttpu_dtype_is_float(t)) {
    op_ret(h, c, 0, hlo_const_int(h, TTPU_BOOL, 0));
  } else {
    op_ret(h, c, 0, *sign ? map_cmp_k(h, "EQ", x, *sign == '-' ? -INFINITY : INFINITY) : map_is_inf(h, x));
  }
}

EMIT(logical_not) {
  const hlo_val_t x = op_tensor_as(h, c, 0, TTPU_BOOL);
  op_ret(h, c, 0, hlo_not(h, x));
}

EMIT(logical) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, TTPU_BOOL, &a, &b);
  op_ret(h, c, 0, hlo_bin(h, op_detail(c), a, b));
}

EMIT(compare) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &a, &b);
  op_ret(h, c, 0, hlo_cmp(h, op_detail(c), a, b));
}

/* --- bits ---------------------------------------------------------------------------------------------- */

EMIT(bitwise) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &a, &b);
  op_ret(h, c, 0, hlo_bin(h, op_detail(c), a, b));
}

/* A count outside [0, bits) shifts everything out: StableHLO's own rule for counts read as unsigned. */
EMIT(shift) {
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, t, &a, &b);
  if (strcmp(op_detail(c), "left") == 0) {
    op_ret(h, c, 0, hlo_shl(h, a, b));
  } else {
    op_ret(h, c, 0, ttpu_dtype_kind(t) == 'u' ? hlo_shr_logical(h, a, b) : hlo_shr(h, a, b));
  }
}

/* --- two operands -------------------------------------------------------------------------------------- */

/* a + alpha * b and a - alpha * b; alpha is argument 2. |detail|: the op; a leading 'r' swaps the operands. */
EMIT(add) {
  const bool is_reverse = op_detail(c)[0] == 'r';
  const char *op = op_detail(c) + is_reverse;
  const ttpu_dtype_e t = map_wide(op_result_type(c, 0, 1));
  hlo_val_t a, b;
  map_pair(h, c, is_reverse, !is_reverse, t, &a, &b);
  const hlo_val_t alpha = op_scalar(h, c, 2, t);
  if (t == TTPU_BOOL) {
    op_ret(h, c, 0, hlo_or(h, a, hlo_and(h, b, alpha)));
  } else {
    op_ret(h, c, 0, hlo_bin(h, op, a, hlo_mul(h, b, alpha)));
  }
}

EMIT(add_relu) {
  const ttpu_dtype_e t = map_wide(op_result_type(c, 0, 1));
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, t, &a, &b);
  const hlo_val_t sum = hlo_add(h, a, hlo_mul(h, b, op_scalar(h, c, 2, t)));
  op_ret(h, c, 0, map_max_k(h, sum, 0));
}

EMIT(mul) {
  const ttpu_dtype_e t = map_wide(op_result_type(c, 0, 1));
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, t, &a, &b);
  op_ret(h, c, 0, t == TTPU_BOOL ? hlo_and(h, a, b) : hlo_mul(h, a, b));
}

/* Arguments 0 and 1 in their compute type, but numbers first rounded to the common type: it matters to remainders. */
static void rounded_pair(hlo_t *h, const op_call_t *c, hlo_val_t *a, hlo_val_t *b) {
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  map_pair(h, c, 0, 1, t, a, b);
  *a = hlo_convert(h, *a, map_wide(t));
  *b = hlo_convert(h, *b, map_wide(t));
}

/* Same-type binary op named by |detail|. */
EMIT(bin) {
  hlo_val_t a, b;
  rounded_pair(h, c, &a, &b);
  op_ret(h, c, 0, hlo_bin(h, op_detail(c), a, b));
}

/* The same in floating point. */
EMIT(bin_float) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, map_float_of(c, op_result_type(c, 0, 1)), &a, &b);
  op_ret(h, c, 0, hlo_bin(h, op_detail(c), a, b));
}

/* True where the remainder |rem| of a division by |b| is not zero and differs from b in sign. */
static hlo_val_t is_short(hlo_t *h, hlo_val_t rem, hlo_val_t b) {
  const hlo_val_t rem_is_negative = map_cmp_k(h, "LT", rem, 0);
  const hlo_val_t b_is_negative = map_cmp_k(h, "LT", b, 0);
  const hlo_val_t signs_differ = hlo_ne(h, rem_is_negative, b_is_negative);
  return hlo_and(h, map_cmp_k(h, "NE", rem, 0), signs_differ);
}

/* Floats follow Python: from the exact remainder, so that floor(a / b) is right where a / b rounds up. */
hlo_val_t map_floor_divide(hlo_t *h, hlo_val_t a, hlo_val_t b) {
  const ttpu_dtype_e t = hlo_dtype(h, a);
  const hlo_val_t quotient = hlo_div(h, a, b);
  if (t == TTPU_BOOL || ttpu_dtype_kind(t) == 'u') return quotient;
  const hlo_val_t rem = hlo_rem(h, a, b);
  const hlo_val_t one_less = is_short(h, rem, b);
  if (ttpu_dtype_is_int(t)) return hlo_sub(h, quotient, hlo_convert(h, one_less, t));
  const hlo_val_t exact = hlo_div(h, hlo_sub(h, a, rem), b);
  const hlo_val_t whole = hlo_sub(h, exact, hlo_convert(h, one_less, t));
  const hlo_val_t down = hlo_floor(h, whole);
  const hlo_val_t is_far = map_cmp_k(h, "GT", hlo_sub(h, whole, down), 0.5);
  const hlo_val_t nearest = hlo_add(h, down, hlo_convert(h, is_far, t));
  const hlo_val_t signed_zero = map_copy_sign(h, hlo_like(h, a, 0), quotient);
  const hlo_val_t result = hlo_select(h, map_cmp_k(h, "EQ", whole, 0), signed_zero, nearest);
  return hlo_select(h, map_cmp_k(h, "EQ", b, 0), quotient, result);
}

static void divide(hlo_t *h, const op_call_t *c, const char *mode) {
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  hlo_val_t a, b;
  if (!*mode) {
    map_pair(h, c, 0, 1, map_float_of(c, t), &a, &b);
    op_ret(h, c, 0, hlo_div(h, a, b));
    return;
  }
  rounded_pair(h, c, &a, &b);
  op_ret(h, c, 0, *mode == 'f' ? map_floor_divide(h, a, b) : map_truncate(h, hlo_div(h, a, b)));
}

EMIT(div) { divide(h, c, op_detail(c) ? op_detail(c) : ""); }
EMIT(div_mode) { divide(h, c, op_string(c, 2)); }

/* Python's %: the result has the divisor's sign. */
EMIT(remainder) {
  hlo_val_t a, b;
  rounded_pair(h, c, &a, &b);
  const hlo_val_t rem = hlo_rem(h, a, b);
  if (ttpu_dtype_kind(hlo_dtype(h, a)) == 'u') {
    op_ret(h, c, 0, rem);
    return;
  }
  const hlo_val_t moved = hlo_add(h, rem, b);
  op_ret(h, c, 0, hlo_select(h, is_short(h, rem, b), moved, rem));
}

hlo_val_t map_extremum(hlo_t *h, const char *op, hlo_val_t a, hlo_val_t b) {
  if (hlo_dtype(h, a) == TTPU_BOOL) return hlo_bin(h, strcmp(op, "maximum") == 0 ? "or" : "and", a, b);
  return hlo_bin(h, op, a, b);
}

EMIT(extremum) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &a, &b);
  op_ret(h, c, 0, map_extremum(h, op_detail(c), a, b));
}

/* fmax and fmin: NaN loses. */
EMIT(extremum_number) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &a, &b);
  hlo_val_t result = map_extremum(h, op_detail(c), a, b);
  if (ttpu_dtype_is_float(hlo_dtype(h, a))) {
    result = hlo_select(h, hlo_is_nan(h, b), a, result);
    result = hlo_select(h, hlo_is_nan(h, a), b, result);
  }
  op_ret(h, c, 0, result);
}

/* clamp of argument 0 to [1, 2], either of which may be missing; numbers or tensors. The upper bound wins. */
EMIT(clamp) {
  ttpu_dtype_e t = op_arg_dtype(c, 0);
  if (op_has(c, 1)) t = ttpu_dtype_promote(t, op_result_type(c, 0, 1));
  if (op_has(c, 2)) t = ttpu_dtype_promote(t, op_result_type(c, 0, 2));
  hlo_val_t x = op_tensor_as(h, c, 0, t);
  if (op_has(c, 1)) x = map_extremum(h, "maximum", x, op_tensor_as(h, c, 1, t));
  if (op_has(c, 2)) x = map_extremum(h, "minimum", x, op_tensor_as(h, c, 2, t));
  op_ret(h, c, 0, x);
}

hlo_val_t map_copy_sign(hlo_t *h, hlo_val_t magnitude, hlo_val_t sign) {
  const hlo_val_t size = hlo_abs(h, magnitude);
  const hlo_val_t negated = hlo_neg(h, size);
  return hlo_select(h, map_sign_bit(h, sign), negated, size);
}

EMIT(copysign) {
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, map_float_of(c, op_result_type(c, 0, 1)), &a, &b);
  op_ret(h, c, 0, map_copy_sign(h, a, b));
}

EMIT(nextafter) {
  hlo_val_t xs[2];
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &xs[0], &xs[1]);
  xs[0] = map_expand(h, c, xs[0]);
  xs[1] = map_expand(h, c, xs[1]);
  op_ret(h, c, 0, hlo_chlo(h, "next_after", 2, xs));
}

EMIT(heaviside) {
  hlo_val_t x, at_zero;
  map_pair(h, c, 0, 1, op_result_type(c, 0, 1), &x, &at_zero);
  const hlo_val_t step = hlo_convert(h, map_cmp_k(h, "GT", x, 0), hlo_dtype(h, x));
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "EQ", x, 0), at_zero, step));
}

EMIT(complex) {
  hlo_val_t re, im;
  map_pair(h, c, 0, 1, ttpu_dtype_real(op_result_dtype(c, 0)), &re, &im);
  re = map_expand(h, c, re);
  im = map_expand(h, c, im);
  op_ret(h, c, 0, hlo_complex(h, re, im));
}

EMIT(polar) {
  hlo_val_t size, phase;
  map_pair(h, c, 0, 1, ttpu_dtype_real(op_result_dtype(c, 0)), &size, &phase);
  const hlo_val_t re = hlo_mul(h, size, hlo_cos(h, phase));
  const hlo_val_t im = hlo_mul(h, size, hlo_sin(h, phase));
  op_ret(h, c, 0, hlo_complex(h, re, im));
}

/* --- integers by Euclid's algorithm ---------------------------------------------------------------------- */

static void gcd_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_reduce_all(h, "or", map_cmp_k(h, "NE", args[1], 0));
}

static void gcd_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t a = args[0], b = args[1];
  const hlo_val_t is_done = map_cmp_k(h, "EQ", b, 0);
  const hlo_val_t rem = hlo_rem(h, a, map_then_k(h, is_done, 1, b));
  results[0] = hlo_select(h, is_done, a, b);
  results[1] = hlo_select(h, is_done, b, rem);
}

EMIT(gcd) {
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  hlo_val_t a, b, state[2];
  map_pair(h, c, 0, 1, t, &a, &b);
  a = map_expand(h, c, a);
  b = map_expand(h, c, b);
  state[0] = hlo_abs(h, a);
  state[1] = hlo_abs(h, b);
  hlo_while(h, 2, state, gcd_goes_on, gcd_step, NULL, state);
  if (strcmp(op_detail(c), "gcd") == 0) {
    op_ret(h, c, 0, state[0]);
    return;
  }
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", state[0], 0);
  const hlo_val_t part = hlo_div(h, a, map_then_k(h, is_zero, 1, state[0]));
  const hlo_val_t multiple = hlo_abs(h, hlo_mul(h, part, b));
  op_ret(h, c, 0, map_then_k(h, is_zero, 0, multiple));
}

/* --- three operands ------------------------------------------------------------------------------------ */

EMIT(where) {
  hlo_val_t a, b;
  const hlo_val_t pred = op_tensor_as(h, c, 0, TTPU_BOOL);
  map_pair(h, c, 1, 2, op_result_type(c, 1, 2), &a, &b);
  op_ret(h, c, 0, hlo_select(h, pred, a, b));
}

EMIT(masked_fill) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const hlo_val_t mask = op_tensor_as(h, c, 1, TTPU_BOOL);
  const hlo_val_t value = op_tensor_as(h, c, 2, hlo_dtype(h, x));
  op_ret(h, c, 0, hlo_select(h, mask, value, x));
}

/* self + value * a * b and self + value * a / b; |detail| is the op between a and b. */
EMIT(addc) {
  const ttpu_dtype_e t = map_wide(map_result_type3(c, 0, 1, 2));
  const hlo_val_t x = op_tensor_as(h, c, 0, t);
  hlo_val_t a, b;
  map_pair(h, c, 1, 2, t, &a, &b);
  const hlo_val_t scaled = hlo_mul(h, a, op_scalar(h, c, 3, t));
  op_ret(h, c, 0, hlo_add(h, x, hlo_bin(h, op_detail(c), scaled, b)));
}

/* Two forms, each exact at its end: CPU's choice. */
EMIT(lerp) {
  const ttpu_dtype_e t = map_wide(op_result_type(c, 0, 1));
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, t, &a, &b);
  const hlo_val_t weight = op_tensor_as(h, c, 2, t);
  const hlo_val_t delta = hlo_sub(h, b, a);
  const hlo_val_t from_a = hlo_add(h, a, hlo_mul(h, weight, delta));
  const hlo_val_t rest = map_k_sub(h, 1, weight);
  const hlo_val_t from_b = hlo_sub(h, b, hlo_mul(h, delta, rest));
  const hlo_val_t is_low = map_cmp_k(h, "LT", hlo_abs(h, weight), 0.5);
  op_ret(h, c, 0, hlo_select(h, is_low, from_a, from_b));
}

/* --- filling ------------------------------------------------------------------------------------------- */

EMIT(fill) { op_ret(h, c, 0, op_tensor_as(h, c, 1, op_result_dtype(c, 0))); }
EMIT(zero) { op_ret(h, c, 0, hlo_const_int(h, op_result_dtype(c, 0), 0)); }

static double greatest_finite(ttpu_dtype_e t) {
  switch (t) {
    case TTPU_F16: return 65504;
    case TTPU_BF16: return 0x1.fep127;
    case TTPU_F64: return DBL_MAX;
    default: return (double)FLT_MAX;
  }
}

static hlo_val_t replace_non_finite(hlo_t *h, const op_call_t *c, hlo_val_t x) {
  const ttpu_dtype_e t = hlo_dtype(h, x);
  const double top = greatest_finite(t);
  const hlo_val_t nan = op_has(c, 1) ? op_scalar(h, c, 1, t) : hlo_const(h, t, 0);
  const hlo_val_t high = op_has(c, 2) ? op_scalar(h, c, 2, t) : hlo_const(h, t, top);
  const hlo_val_t low = op_has(c, 3) ? op_scalar(h, c, 3, t) : hlo_const(h, t, -top);
  const hlo_val_t is_nan = hlo_is_nan(h, x);
  const hlo_val_t is_high = map_cmp_k(h, "EQ", x, INFINITY);
  const hlo_val_t is_low = map_cmp_k(h, "EQ", x, -INFINITY);
  x = hlo_select(h, is_nan, nan, x);
  x = hlo_select(h, is_high, high, x);
  return hlo_select(h, is_low, low, x);
}

EMIT(nan_to_num) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (ttpu_dtype_is_complex(hlo_dtype(h, x))) {
    const hlo_val_t re = replace_non_finite(h, c, hlo_real(h, x));
    op_ret(h, c, 0, hlo_complex(h, re, replace_non_finite(h, c, hlo_imag(h, x))));
  } else {
    op_ret(h, c, 0, ttpu_dtype_is_float(hlo_dtype(h, x)) ? replace_non_finite(h, c, x) : x);
  }
}

/* --- mantissa and exponent ------------------------------------------------------------------------------- */

/* x = mantissa * 2**exponent, mantissa in [0.5, 1), read from the bits; zero, infinities and NaN keep exponent 0. */
EMIT(frexp) {
  const hlo_val_t x = map_arg(h, c, 0);
  const bool is_double = hlo_dtype(h, x) == TTPU_F64;
  const ttpu_dtype_e bits_type = is_double ? TTPU_I64 : TTPU_I32;
  const int fraction_bits = is_double ? 52 : 23, exponent_mask = is_double ? 0x7ff : 0xff;
  const int bias = is_double ? 1022 : 126; /* of exponents of mantissas in [0.5, 1) */
  const double least_normal = is_double ? DBL_MIN : (double)FLT_MIN;
  const hlo_val_t is_small = map_cmp_k(h, "LT", hlo_abs(h, x), least_normal);
  const hlo_val_t raised = map_mul_k(h, x, ldexp(1, 64));
  const hlo_val_t normal = hlo_select(h, is_small, raised, x);
  const hlo_val_t bits = hlo_bitcast(h, normal, bits_type);
  const hlo_val_t shift = hlo_const_int(h, bits_type, fraction_bits);
  const hlo_val_t shifted = hlo_shr_logical(h, bits, shift);
  const hlo_val_t field = hlo_and(h, shifted, hlo_const_int(h, bits_type, exponent_mask));
  const hlo_val_t high = hlo_sub(h, field, hlo_const_int(h, bits_type, bias));
  const hlo_val_t low = hlo_sub(h, high, hlo_const_int(h, bits_type, 64));
  const hlo_val_t exponent = hlo_select(h, is_small, low, high);
  const int64_t keep = is_double ? (int64_t)0x800fffffffffffff : (int64_t)(int32_t)0x807fffff;
  const hlo_val_t fraction = hlo_and(h, bits, hlo_const_int(h, bits_type, keep));
  const hlo_val_t half = hlo_const_int(h, bits_type, (int64_t)bias << fraction_bits);
  const hlo_val_t mantissa = hlo_bitcast(h, hlo_or(h, fraction, half), hlo_dtype(h, x));
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", x, 0);
  const hlo_val_t is_finite = hlo_is_finite(h, x);
  const hlo_val_t is_plain = hlo_and(h, is_finite, hlo_not(h, is_zero));
  op_ret(h, c, 0, hlo_select(h, is_plain, mantissa, x));
  op_ret(h, c, 1, map_else_k(h, is_plain, exponent, 0));
}
