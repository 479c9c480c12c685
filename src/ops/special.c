/* special.c: special functions by rational and Chebyshev approximations, recurrences and series.
 * Half types compute in f32 and integers in the result's float type (map.h). Where a function is pieced together, all
 * pieces are computed and selected, so a piece may be NaN outside of its range.
 */
#include "ops/map.h"
#include "ops/special_table.h"

#include <string.h>

#define LENGTH(table) ((int)(sizeof(table) / sizeof *(table)))
#define HORNER(h, x, table) horner(h, x, LENGTH(table), table)
#define CLENSHAW(h, x, table) clenshaw(h, x, LENGTH(table), table)

/* The polynomial in |x| with |k|, highest order first. */
static hlo_val_t horner(hlo_t *h, hlo_val_t x, int count, const double *k) {
  hlo_val_t sum = hlo_like(h, x, k[0]);
  for (int i = 1; i < count; i++) sum = map_add_k(h, hlo_mul(h, sum, x), k[i]);
  return sum;
}

/* The Chebyshev series in |x| / 2 with |k|, highest order first, its last coefficient counting half. */
static hlo_val_t clenshaw(hlo_t *h, hlo_val_t x, int count, const double *k) {
  hlo_val_t b0 = hlo_like(h, x, k[0]), b1 = hlo_like(h, x, 0), b2 = b1;
  for (int i = 1; i < count; i++) {
    b2 = b1;
    b1 = b0;
    b0 = map_add_k(h, hlo_sub(h, hlo_mul(h, x, b1), b2), k[i]);
  }
  return map_mul_k(h, hlo_sub(h, b0, b2), 0.5);
}

static hlo_val_t ratio(hlo_t *h, hlo_val_t x, int p_count, const double *p, int q_count, const double *q) {
  const hlo_val_t top = horner(h, x, p_count, p);
  return hlo_div(h, top, horner(h, x, q_count, q));
}
#define RATIO(h, x, p, q) ratio(h, x, LENGTH(p), p, LENGTH(q), q)

/* --- modified Bessel functions --------------------------------------------------------------------------- */

/* exp(-|x|) * I0(x), or I1(x). */
static hlo_val_t scaled_i(hlo_t *h, int order, hlo_val_t x) {
  const hlo_val_t size = hlo_abs(h, x);
  const hlo_val_t near_at = map_sub_k(h, map_mul_k(h, size, 0.5), 2);
  const hlo_val_t far_at = map_sub_k(h, map_k_div(h, 32, size), 2);
  const hlo_val_t root = hlo_sqrt(h, size);
  hlo_val_t near_value, far_value;
  if (order == 0) {
    near_value = CLENSHAW(h, near_at, I0_NEAR);
    far_value = CLENSHAW(h, far_at, I0_FAR);
  } else {
    near_value = hlo_mul(h, CLENSHAW(h, near_at, I1_NEAR), size);
    far_value = CLENSHAW(h, far_at, I1_FAR);
  }
  far_value = hlo_div(h, far_value, root);
  const hlo_val_t value = hlo_select(h, map_cmp_k(h, "LE", size, 8), near_value, far_value);
  if (order == 0) return value;
  const hlo_val_t negated = hlo_neg(h, value);
  return hlo_select(h, map_cmp_k(h, "LT", x, 0), negated, value);
}

static hlo_val_t bessel_i(hlo_t *h, int order, hlo_val_t x) {
  const hlo_val_t scaled = scaled_i(h, order, x);
  return hlo_mul(h, hlo_exp(h, hlo_abs(h, x)), scaled);
}

/* |detail|: "0", "1", and "0e", "1e" for the exponentially scaled ones. */
EMIT(bessel_i) {
  const char *kind = op_detail(c);
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, kind[1] == 'e' ? scaled_i(h, kind[0] - '0', x) : bessel_i(h, kind[0] - '0', x));
}

/* K0 and K1; infinite at zero, NaN below. |detail| as above. */
EMIT(bessel_k) {
  const char *kind = op_detail(c);
  const int order = kind[0] - '0';
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t near_at = map_sub_k(h, hlo_mul(h, x, x), 2);
  const hlo_val_t far_at = map_sub_k(h, map_k_div(h, 8, x), 2);
  const hlo_val_t series = order == 0 ? CLENSHAW(h, near_at, K0_NEAR) : CLENSHAW(h, near_at, K1_NEAR);
  const hlo_val_t log_half = hlo_log(h, map_mul_k(h, x, 0.5));
  const hlo_val_t log_part = hlo_mul(h, log_half, bessel_i(h, order, x));
  hlo_val_t near_value = order == 0 ? hlo_sub(h, series, log_part) : hlo_add(h, log_part, hlo_div(h, series, x));
  hlo_val_t far_value = order == 0 ? CLENSHAW(h, far_at, K0_FAR) : CLENSHAW(h, far_at, K1_FAR);
  far_value = hlo_div(h, far_value, hlo_sqrt(h, x));
  if (kind[1] == 'e') {
    near_value = hlo_mul(h, near_value, hlo_exp(h, x));
  } else {
    far_value = hlo_mul(h, far_value, hlo_exp(h, hlo_neg(h, x)));
  }
  const hlo_val_t value = hlo_select(h, map_cmp_k(h, "LE", x, 2), near_value, far_value);
  const hlo_val_t at_zero = map_then_k(h, map_cmp_k(h, "EQ", x, 0), INFINITY, value);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "LT", x, 0), NAN, at_zero));
}

/* --- Bessel functions ---------------------------------------------------------------------------------------- */

/* Beyond 5: sqrt(2 / (pi x)) times (p cos - q sin) for J and (p sin + q cos) for Y, at x - pi/4 - order * pi/2. */
static hlo_val_t bessel_far(hlo_t *h, int order, bool is_y, hlo_val_t x) {
  const hlo_val_t w = map_k_div(h, 5, x);
  const hlo_val_t z = hlo_mul(h, w, w);
  hlo_val_t p, q;
  if (order == 0) {
    p = RATIO(h, z, J0_PP, J0_PQ);
    q = RATIO(h, z, J0_QP, J0_QQ);
  } else {
    p = RATIO(h, z, J1_PP, J1_PQ);
    q = RATIO(h, z, J1_QP, J1_QQ);
  }
  q = hlo_mul(h, w, q);
  const hlo_val_t phase = map_sub_k(h, x, order == 0 ? M_PI_4 : 3 * M_PI_4);
  const hlo_val_t cosine = hlo_cos(h, phase);
  const hlo_val_t sine = hlo_sin(h, phase);
  const hlo_val_t first = hlo_mul(h, p, is_y ? sine : cosine);
  const hlo_val_t second = hlo_mul(h, q, is_y ? cosine : sine);
  const hlo_val_t wave = is_y ? hlo_add(h, first, second) : hlo_sub(h, first, second);
  const hlo_val_t scaled = map_mul_k(h, wave, 0.79788456080286535588);
  return hlo_div(h, scaled, hlo_sqrt(h, x));
}

static hlo_val_t bessel_j(hlo_t *h, int order, hlo_val_t x) {
  const hlo_val_t size = hlo_abs(h, x);
  const hlo_val_t square = hlo_mul(h, size, size);
  hlo_val_t near_value;
  if (order == 0) {
    near_value = RATIO(h, square, J0_RP, J0_RQ);
    near_value = hlo_mul(h, near_value, map_sub_k(h, square, 5.78318596294678452118));
    near_value = hlo_mul(h, near_value, map_sub_k(h, square, 30.4712623436620863991));
  } else {
    near_value = hlo_mul(h, RATIO(h, square, J1_RP, J1_RQ), size);
    near_value = hlo_mul(h, near_value, map_sub_k(h, square, 14.6819706421238932572));
    near_value = hlo_mul(h, near_value, map_sub_k(h, square, 49.2184563216946036703));
  }
  const hlo_val_t far_value = bessel_far(h, order, false, size);
  const hlo_val_t value = hlo_select(h, map_cmp_k(h, "LE", size, 5), near_value, far_value);
  if (order == 0) return value;
  const hlo_val_t negated = hlo_neg(h, value);
  return hlo_select(h, map_cmp_k(h, "LT", x, 0), negated, value);
}

EMIT(bessel_j) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, bessel_j(h, op_detail(c)[0] - '0', x));
}

/* Y0 and Y1: minus infinity at zero, NaN below. */
EMIT(bessel_y) {
  const int order = op_detail(c)[0] - '0';
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t square = hlo_mul(h, x, x);
  const hlo_val_t log_x = hlo_log(h, x);
  const hlo_val_t log_part = hlo_mul(h, log_x, bessel_j(h, order, x));
  hlo_val_t near_value;
  if (order == 0) {
    const hlo_val_t smooth = RATIO(h, square, Y0_YP, Y0_YQ);
    near_value = hlo_add(h, smooth, map_mul_k(h, log_part, M_2_PI));
  } else {
    const hlo_val_t smooth = hlo_mul(h, RATIO(h, square, Y1_YP, Y1_YQ), x);
    const hlo_val_t pole = map_k_div(h, 1, x);
    near_value = hlo_add(h, smooth, map_mul_k(h, hlo_sub(h, log_part, pole), M_2_PI));
  }
  const hlo_val_t far_value = bessel_far(h, order, true, x);
  const hlo_val_t value = hlo_select(h, map_cmp_k(h, "LE", x, 5), near_value, far_value);
  const hlo_val_t at_zero = map_then_k(h, map_cmp_k(h, "EQ", x, 0), -INFINITY, value);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "LT", x, 0), NAN, at_zero));
}

/* sin(x) / x by its series near zero. */
EMIT(spherical_bessel_j0) {
  static const double SERIES[] = {1 / 6227020800.0, -1 / 39916800.0, 1 / 362880.0, -1 / 5040.0, 1 / 120.0, -1 / 6.0, 1};
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t near_value = HORNER(h, hlo_mul(h, x, x), SERIES);
  const hlo_val_t far_value = hlo_div(h, hlo_sin(h, x), x);
  const hlo_val_t size = hlo_abs(h, x);
  const hlo_val_t value = hlo_select(h, map_cmp_k(h, "LT", size, 0.5), near_value, far_value);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "EQ", size, INFINITY), 0, value));
}

/* Airy's Ai: decaying, oscillating, and between them the power series of both solutions of y'' = x y. */
EMIT(airy_ai) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t size = hlo_abs(h, x);
  const hlo_val_t root = hlo_sqrt(h, size);
  const hlo_val_t zeta = map_mul_k(h, hlo_mul(h, size, root), 2.0 / 3);
  const hlo_val_t z = map_k_div(h, 1, zeta);
  const hlo_val_t height = map_k_div(h, 0.56418958354775628695, hlo_sqrt(h, root));

  const hlo_val_t fading = map_mul_k(h, hlo_exp(h, hlo_neg(h, zeta)), 0.5);
  const hlo_val_t right = hlo_mul(h, hlo_mul(h, RATIO(h, z, AIRY_AN, AIRY_AD), height), fading);

  const hlo_val_t z2 = hlo_mul(h, z, z);
  const hlo_val_t f = map_add_k(h, hlo_mul(h, RATIO(h, z2, AIRY_FN, AIRY_FD), z2), 1);
  const hlo_val_t g = hlo_mul(h, RATIO(h, z2, AIRY_GN, AIRY_GD), z);
  const hlo_val_t phase = map_add_k(h, zeta, M_PI_4);
  const hlo_val_t f_wave = hlo_mul(h, f, hlo_sin(h, phase));
  const hlo_val_t g_wave = hlo_mul(h, g, hlo_cos(h, phase));
  const hlo_val_t left = hlo_mul(h, height, hlo_sub(h, f_wave, g_wave));

  enum { TERMS = 20 };
  double even[TERMS], odd[TERMS]; /* highest order first, in x**3 */
  double a = 0.355028053887817239260, b = -0.258819403792806798405;
  for (int k = 0; k < TERMS; k++) {
    even[TERMS - 1 - k] = a;
    odd[TERMS - 1 - k] = b;
    a /= (3.0 * k + 2) * (3.0 * k + 3);
    b /= (3.0 * k + 3) * (3.0 * k + 4);
  }
  const hlo_val_t cube = hlo_mul(h, hlo_mul(h, x, x), x);
  const hlo_val_t even_sum = horner(h, cube, TERMS, even);
  const hlo_val_t odd_sum = hlo_mul(h, horner(h, cube, TERMS, odd), x);
  const hlo_val_t middle = hlo_add(h, even_sum, odd_sum);

  const hlo_val_t lower = hlo_select(h, map_cmp_k(h, "LT", x, -2.09), left, middle);
  const hlo_val_t value = hlo_select(h, map_cmp_k(h, "GE", x, 2.09), right, lower);
  const hlo_val_t held = map_then_k(h, map_cmp_k(h, "GT", x, 103.892), 0, value);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "EQ", size, INFINITY), NAN, held));
}

/* --- the normal distribution ----------------------------------------------------------------------------------- */

/* exp(x**2) * erfc(x): by definition below 5, above by the asymptotic series, whose terms still fall there. */
static hlo_val_t scaled_erfc(hlo_t *h, hlo_val_t x) {
  enum { TERMS = 20 };
  double series[TERMS], term = 1;
  for (int k = 0; k < TERMS; k++) {
    series[TERMS - 1 - k] = term;
    term *= -(2.0 * k + 1) / 2;
  }
  const hlo_val_t square = hlo_mul(h, x, x);
  const hlo_val_t growth = hlo_exp(h, square);
  const hlo_val_t low = hlo_mul(h, growth, hlo_chlo(h, "erfc", 1, &x));
  const hlo_val_t sum = horner(h, map_k_div(h, 1, square), TERMS, series);
  const hlo_val_t high = hlo_div(h, map_mul_k(h, sum, M_2_SQRTPI / 2), x);
  return hlo_select(h, map_cmp_k(h, "LT", x, 5), low, high);
}

EMIT(erfcx) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  op_ret(h, c, 0, scaled_erfc(h, x));
}

EMIT(log_ndtr) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t z = map_mul_k(h, x, M_SQRT1_2);
  const hlo_val_t tail = hlo_log(h, map_mul_k(h, scaled_erfc(h, hlo_neg(h, z)), 0.5));
  const hlo_val_t low = hlo_sub(h, tail, hlo_mul(h, z, z));
  const hlo_val_t high = hlo_log1p(h, map_mul_k(h, hlo_chlo(h, "erfc", 1, &z), -0.5));
  op_ret(h, c, 0, hlo_select(h, map_cmp_k(h, "LT", x, -1), low, high));
}

/* The inverse of the normal distribution function. */
EMIT(ndtri) {
  const double EXP_MINUS_2 = 0.13533528323661269189;
  const hlo_val_t y = map_float_arg(h, c, 0);
  const hlo_val_t is_right = map_cmp_k(h, "GT", y, 1 - EXP_MINUS_2);
  const hlo_val_t side = hlo_select(h, is_right, map_k_sub(h, 1, y), y);

  const hlo_val_t offset = map_sub_k(h, side, 0.5);
  const hlo_val_t square = hlo_mul(h, offset, offset);
  const hlo_val_t bend = hlo_mul(h, hlo_mul(h, RATIO(h, square, NDTRI_P0, NDTRI_Q0), square), offset);
  const hlo_val_t center = map_mul_k(h, hlo_add(h, offset, bend), 2.50662827463100050242);

  const hlo_val_t x = hlo_sqrt(h, map_mul_k(h, hlo_log(h, side), -2));
  const hlo_val_t z = map_k_div(h, 1, x);
  const hlo_val_t near_tail = RATIO(h, z, NDTRI_P1, NDTRI_Q1);
  const hlo_val_t far_tail = RATIO(h, z, NDTRI_P2, NDTRI_Q2);
  const hlo_val_t correction = hlo_mul(h, hlo_select(h, map_cmp_k(h, "LT", x, 8), near_tail, far_tail), z);
  const hlo_val_t first = hlo_sub(h, x, hlo_mul(h, hlo_log(h, x), z));
  const hlo_val_t tail = hlo_sub(h, first, correction);
  const hlo_val_t signed_tail = hlo_select(h, is_right, tail, hlo_neg(h, tail));

  hlo_val_t value = hlo_select(h, map_cmp_k(h, "GT", side, EXP_MINUS_2), center, signed_tail);
  value = map_then_k(h, map_cmp_k(h, "EQ", y, 0), -INFINITY, value);
  value = map_then_k(h, map_cmp_k(h, "EQ", y, 1), INFINITY, value);
  const hlo_val_t is_below = map_cmp_k(h, "LT", y, 0);
  const hlo_val_t is_out = hlo_or(h, is_below, map_cmp_k(h, "GT", y, 1));
  op_ret(h, c, 0, map_then_k(h, is_out, NAN, value));
}

/* -x * log(x), zero at zero, minus infinity below. */
EMIT(entr) {
  const hlo_val_t x = map_float_arg(h, c, 0);
  const hlo_val_t value = hlo_neg(h, hlo_mul(h, x, hlo_log(h, x)));
  const hlo_val_t at_zero = map_then_k(h, map_cmp_k(h, "EQ", x, 0), 0, value);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "LT", x, 0), -INFINITY, at_zero));
}

/* --- gamma functions -------------------------------------------------------------------------------------------- */

static hlo_val_t lgamma_of(hlo_t *h, hlo_val_t x) { return hlo_chlo(h, "lgamma", 1, &x); }

/* Hurwitz' zeta function by Euler and Maclaurin: terms until (q + k) passes 9, then the integral and its corrections.
 * (chlo.zeta stops after nine terms, too early for negative q.) The loop's state is (round, x, q + k, sum). */
enum { ZETA_FIRST = 9, ZETA_ROUNDS = 1 << 20 };

static hlo_val_t zeta_is_open(hlo_t *h, const hlo_val_t *s) {
  const hlo_val_t is_early = map_cmp_k(h, "LT", s[0], ZETA_FIRST);
  return hlo_or(h, is_early, map_cmp_k(h, "LE", s[2], ZETA_FIRST));
}

static void zeta_goes_on(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t is_open = hlo_reduce_all(h, "or", zeta_is_open(h, s));
  results[0] = hlo_and(h, is_open, map_cmp_k(h, "LT", s[0], ZETA_ROUNDS));
}

static void zeta_step(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t is_open = zeta_is_open(h, s);
  const hlo_val_t at = map_add_k(h, s[2], 1);
  const hlo_val_t sum = hlo_add(h, s[3], hlo_pow(h, at, hlo_neg(h, s[1])));
  results[0] = map_add_k(h, s[0], 1);
  results[1] = s[1];
  results[2] = hlo_select(h, is_open, at, s[2]);
  results[3] = hlo_select(h, is_open, sum, s[3]);
}

static hlo_val_t hurwitz(hlo_t *h, hlo_val_t x, hlo_val_t q) {
  static const double FACTORIAL_OVER_BERNOULLI[] = {
      12, -720, 30240, -1209600, 47900160, -1.8924375803183791606e9,
      7.47242496e10, -2.950130727918164224e12, 1.1646782814350067249e14,
      -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
  };
  const hlo_val_t is_pole = map_cmp_k(h, "LE", q, 0);
  const hlo_val_t is_whole = hlo_eq(h, q, hlo_floor(h, q));
  const hlo_val_t is_infinite = hlo_and(h, is_pole, is_whole);
  const hlo_val_t start = map_then_k(h, is_infinite, 1, q);
  const hlo_val_t minus_x = hlo_neg(h, x);
  hlo_val_t state[4] = {0, x, start, 0};
  state[0] = hlo_like(h, x, 0);
  state[3] = hlo_pow(h, start, minus_x);
  hlo_while(h, 4, state, zeta_goes_on, zeta_step, NULL, state);

  const hlo_val_t w = state[2];
  hlo_val_t power = hlo_pow(h, w, minus_x);
  const hlo_val_t area = hlo_mul(h, power, w);
  const hlo_val_t integral = hlo_div(h, area, map_sub_k(h, x, 1));
  hlo_val_t sum = hlo_add(h, state[3], integral);
  sum = hlo_sub(h, sum, map_mul_k(h, power, 0.5));
  const double epsilon = hlo_dtype(h, x) == TTPU_F64 ? 0x1p-53 : 0x1p-24;
  hlo_val_t rising = hlo_full_like(h, x, 1), change = hlo_abs(h, hlo_div(h, power, state[3]));
  hlo_val_t is_open = map_cmp_k(h, "GE", change, epsilon); /* else the first terms were all */
  for (int i = 0; i < LENGTH(FACTORIAL_OVER_BERNOULLI); i++) {
    rising = hlo_mul(h, rising, map_add_k(h, x, 2 * i));
    power = hlo_div(h, power, w);
    const hlo_val_t term = map_div_k(h, hlo_mul(h, rising, power), FACTORIAL_OVER_BERNOULLI[i]);
    sum = hlo_select(h, is_open, hlo_add(h, sum, term), sum);
    change = hlo_abs(h, hlo_div(h, term, sum));
    is_open = hlo_and(h, is_open, map_cmp_k(h, "GE", change, epsilon));
    rising = hlo_mul(h, rising, map_add_k(h, x, 2 * i + 1));
    power = hlo_div(h, power, w);
  }
  /* In this order: negative q needs a whole x, whole q are poles, x = 1 is one, and below 1 there is no value. */
  const hlo_val_t x_is_broken = hlo_ne(h, x, hlo_floor(h, x));
  sum = hlo_select(h, map_is_inf(h, state[3]), state[3], sum);
  sum = map_then_k(h, hlo_and(h, is_pole, x_is_broken), NAN, sum);
  sum = map_then_k(h, is_infinite, INFINITY, sum);
  sum = map_then_k(h, map_cmp_k(h, "LT", x, 1), NAN, sum);
  return map_then_k(h, map_cmp_k(h, "EQ", x, 1), INFINITY, sum);
}

EMIT(zeta) {
  hlo_val_t x, q;
  map_pair(h, c, 0, 1, map_float_of(c, op_result_type(c, 0, 1)), &x, &q);
  x = map_expand(h, c, x);
  op_ret(h, c, 0, hurwitz(h, x, map_expand(h, c, q)));
}

/* The derivative of digamma: reflected below 1/2, raised by its recurrence, then the asymptotic series. */
static hlo_val_t trigamma(hlo_t *h, hlo_val_t x) {
  static const double SERIES[] = {1.0 / 42, -1.0 / 30, 1.0 / 6};
  const hlo_val_t is_low = map_cmp_k(h, "LT", x, 0.5);
  hlo_val_t at = hlo_select(h, is_low, map_k_sub(h, 1, x), x);
  hlo_val_t sum = hlo_like(h, x, 0);
  for (int i = 0; i < 6; i++) {
    sum = hlo_add(h, sum, map_k_div(h, 1, hlo_mul(h, at, at)));
    at = map_add_k(h, at, 1);
  }
  const hlo_val_t inverse = map_k_div(h, 1, at);
  const hlo_val_t square = hlo_mul(h, inverse, inverse);
  const hlo_val_t tail = hlo_mul(h, HORNER(h, square, SERIES), square);
  const hlo_val_t head = map_add_k(h, map_mul_k(h, inverse, 0.5), 1);
  sum = hlo_add(h, sum, hlo_mul(h, hlo_add(h, head, tail), inverse));
  const hlo_val_t wave = hlo_sin(h, map_mul_k(h, x, M_PI));
  const hlo_val_t mirrored = hlo_sub(h, map_k_div(h, M_PI * M_PI, hlo_mul(h, wave, wave)), sum);
  return hlo_select(h, is_low, mirrored, sum);
}

/* polygamma(n, x): the n-th derivative of digamma, from Hurwitz' zeta function for n > 1. */
EMIT(polygamma) {
  const int64_t n = op_int(c, 0, 0);
  const hlo_val_t x = map_float_arg(h, c, 1);
  if (n == 0) {
    op_ret(h, c, 0, map_digamma(h, x));
  } else if (n == 1) {
    op_ret(h, c, 0, trigamma(h, x));
  } else {
    const hlo_val_t zeta = hurwitz(h, hlo_full_like(h, x, (double)n + 1), x);
    op_ret(h, c, 0, map_mul_k(h, zeta, (n % 2 ? 1 : -1) * tgamma((double)n + 1)));
  }
}

/* The incomplete gamma functions run in f64: their common factor cancels in f32 from a = 100 on. Both loops work on
 * all elements and stop when the last one has converged; elements of the other branch get arguments that do at once. */
enum { GAMMA_ROUNDS = 2000 };

/* (round, a, x, term, sum): sum of x**k / ((a + 1) ... (a + k)). */
static void series_goes_on(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t limit = map_mul_k(h, s[4], 0x1p-53);
  const hlo_val_t is_open = hlo_reduce_all(h, "or", hlo_gt(h, s[3], limit));
  results[0] = hlo_and(h, is_open, map_cmp_k(h, "LT", s[0], GAMMA_ROUNDS));
}

static void series_step(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  results[0] = map_add_k(h, s[0], 1);
  results[1] = s[1];
  results[2] = s[2];
  const hlo_val_t factor = hlo_div(h, s[2], hlo_add(h, s[1], results[0]));
  results[3] = hlo_mul(h, s[3], factor);
  results[4] = hlo_add(h, s[4], results[3]);
}

/* (round, a, b, c, d, fraction, change): Lentz' evaluation of the continued fraction of Gamma(a, x). */
static void fraction_goes_on(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t distance = hlo_abs(h, map_sub_k(h, s[6], 1));
  const hlo_val_t is_open = hlo_reduce_all(h, "or", map_cmp_k(h, "GT", distance, 0x1p-51));
  results[0] = hlo_and(h, is_open, map_cmp_k(h, "LT", s[0], GAMMA_ROUNDS));
}

static hlo_val_t away_from_zero(hlo_t *h, hlo_val_t x) {
  return map_then_k(h, map_cmp_k(h, "LT", hlo_abs(h, x), 1e-300), 1e-300, x);
}

static void fraction_step(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t i = map_add_k(h, s[0], 1);
  const hlo_val_t numerator = hlo_mul(h, i, hlo_sub(h, s[1], i));
  const hlo_val_t b = map_add_k(h, s[2], 2);
  const hlo_val_t d = away_from_zero(h, hlo_add(h, hlo_mul(h, numerator, s[4]), b));
  results[0] = i;
  results[1] = s[1];
  results[2] = b;
  results[3] = away_from_zero(h, hlo_add(h, b, hlo_div(h, numerator, s[3])));
  results[4] = map_k_div(h, 1, d);
  results[6] = hlo_mul(h, results[3], results[4]);
  results[5] = hlo_mul(h, s[5], results[6]);
}

/* |detail| "lower" is P(a, x), "upper" Q(a, x) = 1 - P. */
EMIT(igamma) {
  const bool is_upper = op_detail(c)[0] == 'u';
  hlo_val_t a, x, series[5], fraction[7];
  map_pair(h, c, 0, 1, TTPU_F64, &a, &x);
  a = map_expand(h, c, a);
  x = map_expand(h, c, x);
  const hlo_val_t log_x = hlo_log(h, x);
  const hlo_val_t power = hlo_sub(h, hlo_mul(h, a, log_x), x);
  const hlo_val_t factor = hlo_exp(h, hlo_sub(h, power, lgamma_of(h, a)));
  const hlo_val_t is_finite_a = hlo_is_finite(h, a);
  const hlo_val_t is_finite = hlo_and(h, is_finite_a, hlo_is_finite(h, x));
  const hlo_val_t is_positive_a = map_cmp_k(h, "GT", a, 0);
  const hlo_val_t is_positive = hlo_and(h, is_positive_a, map_cmp_k(h, "GT", x, 0));
  const hlo_val_t is_plain = hlo_and(h, is_finite, is_positive);
  const hlo_val_t is_small = hlo_and(h, is_plain, hlo_le(h, x, map_add_k(h, a, 1)));
  const hlo_val_t is_large = hlo_and(h, is_plain, hlo_not(h, is_small));

  const hlo_val_t one = hlo_like(h, a, 1);
  series[0] = hlo_like(h, a, 0);
  series[1] = hlo_select(h, is_small, a, one);
  series[2] = map_else_k(h, is_small, x, 0);
  series[3] = hlo_full_like(h, a, 1);
  series[4] = series[3];
  hlo_while(h, 5, series, series_goes_on, series_step, NULL, series);
  const hlo_val_t lower = hlo_div(h, hlo_mul(h, series[4], factor), a);

  const hlo_val_t fraction_a = hlo_select(h, is_large, a, one);
  const hlo_val_t fraction_x = hlo_select(h, is_large, x, hlo_like(h, a, 100));
  fraction[0] = hlo_like(h, a, 0);
  fraction[1] = fraction_a;
  fraction[2] = hlo_sub(h, map_add_k(h, fraction_x, 1), fraction_a);
  fraction[3] = hlo_full_like(h, a, 1e300);
  fraction[4] = map_k_div(h, 1, fraction[2]);
  fraction[5] = fraction[4];
  fraction[6] = hlo_full_like(h, a, 2);
  hlo_while(h, 7, fraction, fraction_goes_on, fraction_step, NULL, fraction);
  const hlo_val_t upper = hlo_mul(h, fraction[5], factor);

  const hlo_val_t other = map_k_sub(h, 1, is_upper ? lower : upper);
  hlo_val_t value = is_upper ? hlo_select(h, is_small, other, upper) : hlo_select(h, is_small, lower, other);
  const double at_zero = is_upper ? 1 : 0; /* of x; also for infinite a */
  const hlo_val_t x_is_inf = map_cmp_k(h, "EQ", x, INFINITY);
  value = map_then_k(h, map_cmp_k(h, "EQ", x, 0), at_zero, value);
  value = map_then_k(h, x_is_inf, 1 - at_zero, value);
  value = map_then_k(h, map_cmp_k(h, "EQ", a, INFINITY), at_zero, value);
  const hlo_val_t a_is_zero = map_cmp_k(h, "EQ", a, 0);
  value = map_then_k(h, a_is_zero, 1 - at_zero, value);
  /* Undefined: negative arguments, both infinite, and zero a without positive x. */
  const hlo_val_t is_lost = hlo_and(h, a_is_zero, hlo_not(h, map_cmp_k(h, "GT", x, 0)));
  const hlo_val_t both_inf = hlo_and(h, x_is_inf, map_cmp_k(h, "EQ", a, INFINITY));
  const hlo_val_t a_is_bad = map_cmp_k(h, "LT", a, 0);
  const hlo_val_t is_bad = hlo_or(h, a_is_bad, map_cmp_k(h, "LT", x, 0));
  value = map_then_k(h, hlo_or(h, is_lost, both_inf), NAN, value);
  op_ret(h, c, 0, map_then_k(h, is_bad, NAN, value));
}

/* --- orthogonal polynomials --------------------------------------------------------------------------------------- */

/* All obey a three-term recurrence from 1 and q1. |detail| names the family by its letter: chebyshev t, u, v, w,
 * hermite h and e (He), laguerre l, legendre p; a leading 's' shifts x to 2x - 1. */
typedef struct {
  char family;
} polynomial_t;

/* (k, x, degree, p, q), q being of degree k. */
static void polynomial_goes_on(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_reduce_all(h, "or", hlo_lt(h, s[0], s[2]));
}

static void polynomial_step(hlo_t *h, void *ctx, const hlo_val_t *s, hlo_val_t *results) {
  const hlo_val_t k = s[0], x = s[1], p = s[3], q = s[4];
  const hlo_val_t kp = hlo_mul(h, k, p);
  const hlo_val_t next_k = map_add_k(h, k, 1);
  hlo_val_t next;
  switch (((const polynomial_t *)ctx)->family) {
    case 'h': { /* 2 (x q - k p) */
      const hlo_val_t xq = hlo_mul(h, x, q);
      next = map_mul_k(h, hlo_sub(h, xq, kp), 2);
      break;
    }
    case 'e': next = hlo_sub(h, hlo_mul(h, x, q), kp); break;
    case 'l': { /* ((2k + 1 - x) q - k p) / (k + 1) */
      const hlo_val_t slope = hlo_sub(h, map_add_k(h, map_mul_k(h, k, 2), 1), x);
      next = hlo_div(h, hlo_sub(h, hlo_mul(h, slope, q), kp), next_k);
      break;
    }
    case 'p': { /* ((2k + 1) x q - k p) / (k + 1) */
      const hlo_val_t slope = hlo_mul(h, map_add_k(h, map_mul_k(h, k, 2), 1), x);
      next = hlo_div(h, hlo_sub(h, hlo_mul(h, slope, q), kp), next_k);
      break;
    }
    default: next = hlo_sub(h, hlo_mul(h, map_mul_k(h, x, 2), q), p); break;
  }
  const hlo_val_t is_open = hlo_lt(h, k, s[2]);
  results[0] = next_k;
  results[1] = x;
  results[2] = s[2];
  results[3] = hlo_select(h, is_open, q, p);
  results[4] = hlo_select(h, is_open, next, q);
}

/* Chebyshev polynomials on (-1, 1) in closed form, with t = acos(x). */
static hlo_val_t chebyshev_closed(hlo_t *h, char family, hlo_val_t x, hlo_val_t n) {
  const hlo_val_t t = hlo_chlo(h, "acos", 1, &x);
  if (family == 't') return hlo_cos(h, hlo_mul(h, n, t));
  if (family == 'u') {
    const hlo_val_t wave = hlo_sin(h, hlo_mul(h, map_add_k(h, n, 1), t));
    return hlo_div(h, wave, hlo_sin(h, t));
  }
  const hlo_val_t phase = hlo_mul(h, map_add_k(h, n, 0.5), t);
  const hlo_val_t half = map_mul_k(h, t, 0.5);
  const bool is_v = family == 'v';
  const hlo_val_t wave = is_v ? hlo_cos(h, phase) : hlo_sin(h, phase);
  return hlo_div(h, wave, is_v ? hlo_cos(h, half) : hlo_sin(h, half));
}

EMIT(polynomial) {
  const char *name = op_detail(c);
  const bool is_shifted = *name == 's';
  polynomial_t poly = {name[is_shifted]};
  const bool is_chebyshev = strchr("tuvw", poly.family) != NULL;
  const bool is_hermite = strchr("he", poly.family) != NULL;
  hlo_val_t x, n, state[5];
  map_pair(h, c, 0, 1, map_float_of(c, op_result_type(c, 0, 1)), &x, &n);
  x = map_expand(h, c, x);
  n = map_expand(h, c, n);
  if (is_shifted) x = map_sub_k(h, map_mul_k(h, x, 2), 1);
  /* The degree counts towards zero; an infinite or NaN one is none. */
  const hlo_val_t is_degree = hlo_is_finite(h, n);
  n = map_else_k(h, is_degree, map_truncate(h, n), -1);
  const double greatest = is_hermite ? (hlo_dtype(h, x) == TTPU_F64 ? 512 : 128) : 1e7;
  hlo_val_t rounds = map_min_k(h, n, greatest);
  rounds = map_then_k(h, hlo_is_nan(h, x), 1, rounds);
  hlo_val_t is_closed = 0;
  if (is_chebyshev) {
    const hlo_val_t is_inside = map_cmp_k(h, "LT", hlo_abs(h, x), 1);
    is_closed = hlo_and(h, is_inside, map_cmp_k(h, "GT", n, 6));
    rounds = map_then_k(h, is_closed, 1, rounds);
  }
  hlo_val_t first = x; /* of degree 1 */
  switch (poly.family) {
    case 'u':
    case 'h': first = map_mul_k(h, x, 2); break;
    case 'v': first = map_sub_k(h, map_mul_k(h, x, 2), 1); break;
    case 'w': first = map_add_k(h, map_mul_k(h, x, 2), 1); break;
    case 'l': first = map_k_sub(h, 1, x); break;
    default: break;
  }
  state[0] = hlo_like(h, x, 1);
  state[1] = x;
  state[2] = rounds;
  state[3] = hlo_full_like(h, x, 1);
  state[4] = first;
  hlo_while(h, 5, state, polynomial_goes_on, polynomial_step, &poly, state);
  hlo_val_t value = state[4];
  if (is_chebyshev) value = hlo_select(h, is_closed, chebyshev_closed(h, poly.family, x, n), value);
  if (is_hermite) value = map_then_k(h, map_cmp_k(h, "GT", n, greatest), NAN, value);
  value = map_then_k(h, map_cmp_k(h, "EQ", n, 0), 1, value);
  op_ret(h, c, 0, map_then_k(h, map_cmp_k(h, "LT", n, 0), 0, value));
}
