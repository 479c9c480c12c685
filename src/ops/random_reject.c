/* random_reject.c: distributions drawn by loops: gamma and Dirichlet, Poisson, binomial.
 *
 * Every element of a call runs the same loop until the last one is done; an element that is done keeps its value. Trip i
 * draws from stream i, so a result does not depend on its neighbours. Loops are bounded: the chance that an element is
 * not done by then is below 1e-40, and NaN parameters end with NaN.
 */
#include <math.h>
#include <string.h>

#include "ops/random.h"

/* --- the loop ----------------------------------------------------------------------------------------- */

enum { PARAMS_MOST = 8, REJECT_TRIPS = 96, INVERT_TRIPS = 160 };

/* One proposal for every element from |state|: its value, and whether it is accepted. */
typedef void (*propose_t)(hlo_t *h, hlo_val_t state, const hlo_val_t *params, hlo_val_t *value, hlo_val_t *accepted);

typedef struct {
  propose_t propose;
  int param_count;
} reject_t;

enum { TRIP, STATE, DONE, VALUE, FIRST_PARAM };

static void reject_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t all = hlo_reduce_all(h, "and", args[DONE]);
  const hlo_val_t open = hlo_not(h, all);
  const hlo_val_t most = hlo_const_int(h, TTPU_U64, REJECT_TRIPS);
  const hlo_val_t in_time = hlo_lt(h, args[TRIP], most);
  results[0] = hlo_and(h, open, in_time);
}

static void reject_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const reject_t *r = ctx;
  const hlo_val_t stream = random_stream_at(h, args[STATE], args[TRIP]);
  hlo_val_t value = 0, accepted = 0;
  r->propose(h, stream, args + FIRST_PARAM, &value, &accepted);
  const hlo_val_t one = hlo_const_int(h, TTPU_U64, 1);
  memcpy(results, args, (size_t)(FIRST_PARAM + r->param_count) * sizeof *results);
  results[TRIP] = hlo_add(h, args[TRIP], one);
  results[VALUE] = hlo_select(h, args[DONE], args[VALUE], value);
  results[DONE] = hlo_or(h, args[DONE], accepted);
}

/* |done| marks elements that need no proposal; they end as |start|. */
static hlo_val_t reject(hlo_t *h, hlo_val_t state, hlo_val_t done, hlo_val_t start, propose_t propose, int param_count,
                        const hlo_val_t *params) {
  reject_t r = {.propose = propose, .param_count = param_count};
  hlo_val_t init[FIRST_PARAM + PARAMS_MOST], out[FIRST_PARAM + PARAMS_MOST] = {0};
  init[TRIP] = hlo_const_int(h, TTPU_U64, 1);
  init[STATE] = state;
  init[DONE] = done;
  init[VALUE] = start;
  memcpy(init + FIRST_PARAM, params, (size_t)param_count * sizeof *params);
  hlo_while(h, FIRST_PARAM + param_count, init, reject_goes_on, reject_step, &r, out);
  return out[VALUE];
}

/* Inversion of a distribution over 0, 1, 2, ...: counts while u is not below the sum of probabilities so far. The ratio of
 * neighbours is probability(k + 1) / probability(k) = (slope * k + offset) / (k + 1). */
enum { COUNT, UNIFORM, SUM, PROBABILITY, SLOPE, OFFSET, INVERT_CARRIED };

static void invert_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t *a = args + 1; /* behind the trip number */
  const hlo_val_t k = hlo_convert(h, args[0], hlo_dtype(h, a[UNIFORM]));
  const hlo_val_t is_behind = hlo_ge(h, a[UNIFORM], a[SUM]);
  const hlo_val_t step = hlo_convert(h, is_behind, hlo_dtype(h, a[COUNT]));
  const hlo_val_t next = map_add_k(h, k, 1);
  const hlo_val_t sloped = hlo_mul(h, a[SLOPE], k);
  const hlo_val_t top = hlo_add(h, sloped, a[OFFSET]);
  const hlo_val_t ratio = hlo_div(h, top, next);
  memcpy(results, a, INVERT_CARRIED * sizeof *results);
  results[COUNT] = hlo_add(h, a[COUNT], step);
  results[PROBABILITY] = hlo_mul(h, a[PROBABILITY], ratio);
  results[SUM] = hlo_add(h, a[SUM], results[PROBABILITY]);
}

static hlo_val_t invert(hlo_t *h, hlo_val_t u, hlo_val_t probability_0, hlo_val_t slope, hlo_val_t offset) {
  const hlo_val_t zero = hlo_full_like(h, u, 0);
  const hlo_val_t init[INVERT_CARRIED] = {zero, u, probability_0, probability_0, slope, offset};
  hlo_val_t out[INVERT_CARRIED] = {0};
  hlo_for(h, INVERT_TRIPS, INVERT_CARRIED, init, invert_step, NULL, out);
  return out[COUNT];
}

/* --- gamma -------------------------------------------------------------------------------------------- */

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), for shapes of at least 1. */
static void propose_gamma(hlo_t *h, hlo_val_t state, const hlo_val_t *params, hlo_val_t *value, hlo_val_t *accepted) {
  const hlo_val_t d = params[0], c = params[1];
  const ttpu_dtype_e t = hlo_dtype(h, d);
  const hlo_val_t second = random_stream(h, state, UINT64_C(1) << 32);
  const hlo_val_t z = random_normal(h, state, t, hlo_rank(h, d), hlo_dims(h, d));
  const hlo_val_t u = random_open(h, second, t, hlo_rank(h, d), hlo_dims(h, d));
  const hlo_val_t cz = hlo_mul(h, c, z);
  const hlo_val_t root = map_add_k(h, cz, 1);
  const hlo_val_t square = hlo_mul(h, root, root);
  const hlo_val_t v = hlo_mul(h, square, root);
  const hlo_val_t is_positive = map_cmp_k(h, "GT", v, 0);
  const hlo_val_t safe = map_else_k(h, is_positive, v, 1);
  const hlo_val_t log_v = hlo_log(h, safe), log_u = hlo_log(h, u);
  const hlo_val_t z2 = hlo_mul(h, z, z);
  const hlo_val_t half = map_mul_k(h, z2, 0.5);
  const hlo_val_t minus = map_k_sub(h, 1, safe);
  const hlo_val_t bracket = hlo_add(h, minus, log_v);
  const hlo_val_t scaled = hlo_mul(h, d, bracket);
  const hlo_val_t bound = hlo_add(h, half, scaled);
  const hlo_val_t is_under = hlo_lt(h, log_u, bound);
  *accepted = hlo_and(h, is_under, is_positive);
  *value = hlo_mul(h, d, v);
}

/* A variate of shape + 1 where |shape| < 1, and the logarithm of what it must be multiplied with: log(u) / shape. */
static hlo_val_t gamma_parts(hlo_t *h, hlo_val_t state, hlo_val_t shape, hlo_val_t *log_factor) {
  const ttpu_dtype_e t = hlo_dtype(h, shape);
  const hlo_val_t is_small = map_cmp_k(h, "LT", shape, 1);
  const hlo_val_t more = map_add_k(h, shape, 1);
  const hlo_val_t a = hlo_select(h, is_small, more, shape);
  const hlo_val_t d = map_add_k(h, a, -1.0 / 3);
  const hlo_val_t nine = map_mul_k(h, d, 9);
  const hlo_val_t params[] = {d, hlo_rsqrt(h, nine)};
  const hlo_val_t done = hlo_is_nan(h, shape);
  const hlo_val_t x = reject(h, state, done, shape, propose_gamma, 2, params);
  const hlo_val_t u = random_open(h, state, t, hlo_rank(h, shape), hlo_dims(h, shape));
  const hlo_val_t log = hlo_log(h, u);
  const hlo_val_t share = hlo_div(h, log, shape);
  *log_factor = map_else_k(h, is_small, share, 0);
  return x;
}

static ttpu_dtype_e compute_type(ttpu_dtype_e t) { return t == TTPU_F64 ? TTPU_F64 : TTPU_F32; }

/* Never 0, as in PyTorch: the least normal number of the result's type instead. */
static double tiny(ttpu_dtype_e t) {
  return t == TTPU_F64 ? 2.2250738585072014e-308 : t == TTPU_F16 ? ldexp(1, -14) : ldexp(1, -126);
}

EMIT(standard_gamma) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0);
  const hlo_val_t shape = op_tensor_as(h, c, 0, compute_type(r)), state = op_random_state(h, c);
  hlo_val_t log_factor;
  const hlo_val_t x = gamma_parts(h, state, shape, &log_factor);
  const hlo_val_t factor = hlo_exp(h, log_factor);
  const hlo_val_t sample = hlo_mul(h, x, factor);
  const hlo_val_t positive = map_max_k(h, sample, tiny(r));
  op_ret(h, c, 0, positive);
}

/* In logarithms: variates of small shapes are far below the least float, their ratios are not. */
EMIT(sample_dirichlet) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0);
  const hlo_val_t shape = op_tensor_as(h, c, 0, compute_type(r)), state = op_random_state(h, c);
  if (hlo_failed(h)) return;
  const int last = hlo_rank(h, shape) - 1;
  hlo_val_t log_factor;
  const hlo_val_t x = gamma_parts(h, state, shape, &log_factor);
  const hlo_val_t log_x = hlo_log(h, x);
  const hlo_val_t log = hlo_add(h, log_x, log_factor);
  const hlo_val_t top = hlo_reduce_dim(h, "maximum", log, last);
  const hlo_val_t most = hlo_spread(h, top, log, 1, &last);
  const hlo_val_t shifted = hlo_sub(h, log, most);
  const hlo_val_t share = hlo_exp(h, shifted);
  const hlo_val_t sum = hlo_reduce_dim(h, "add", share, last);
  const hlo_val_t total = hlo_spread(h, sum, share, 1, &last);
  const hlo_val_t sample = hlo_div(h, share, total);
  const hlo_val_t positive = map_max_k(h, sample, tiny(r));
  op_ret(h, c, 0, positive);
}

/* --- d gamma sample / d shape ------------------------------------------------------------------------- */

/* The distribution is P(a, x) = x^a e^-x / Gamma(a + 1) * S, S = sum of t_n, t_n = x^n / ((a + 1) ... (a + n)). At fixed P
 *   dx/da = -(dP/da) / (dP/dx) = (x / a) * (sum of t_n h_n - (log x - digamma(a + 1)) S),  h_n = sum of 1 / (a + i), i <= n.
 * All terms are positive; in f64 the difference keeps 8 digits as far as samples reach. */
enum { TERM, HARMONIC, TERMS, WEIGHTED, SHAPE, SAMPLE, N, SERIES_CARRIED };
enum { SERIES_TRIPS = 1 << 15 };

static void series_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t least = map_mul_k(h, args[TERMS], 1e-17);
  const hlo_val_t counts = hlo_gt(h, args[TERM], least);
  const hlo_val_t open = hlo_reduce_all(h, "or", counts);
  const hlo_val_t in_time = map_cmp_k(h, "LT", args[N], SERIES_TRIPS);
  results[0] = hlo_and(h, open, in_time);
}

static void series_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  memcpy(results, args, SERIES_CARRIED * sizeof *results);
  results[N] = map_add_k(h, args[N], 1);
  const hlo_val_t denominator = hlo_add(h, args[SHAPE], results[N]);
  const hlo_val_t ratio = hlo_div(h, args[SAMPLE], denominator);
  const hlo_val_t inverse = map_k_div(h, 1, denominator);
  results[TERM] = hlo_mul(h, args[TERM], ratio);
  results[HARMONIC] = hlo_add(h, args[HARMONIC], inverse);
  const hlo_val_t weighted = hlo_mul(h, results[TERM], results[HARMONIC]);
  results[TERMS] = hlo_add(h, args[TERMS], results[TERM]);
  results[WEIGHTED] = hlo_add(h, args[WEIGHTED], weighted);
}

EMIT(standard_gamma_grad) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t a = op_tensor_as(h, c, 0, TTPU_F64), x = op_tensor_as(h, c, 1, TTPU_F64);
  const hlo_val_t one = hlo_full_like(h, a, 1), zero = hlo_full_like(h, a, 0), n = hlo_const(h, TTPU_F64, 0);
  const hlo_val_t init[SERIES_CARRIED] = {one, zero, one, zero, a, x, n};
  hlo_val_t out[SERIES_CARRIED] = {0};
  hlo_while(h, SERIES_CARRIED, init, series_goes_on, series_step, NULL, out);
  const hlo_val_t next = map_add_k(h, a, 1);
  const hlo_val_t psi = hlo_chlo(h, "digamma", 1, &next);
  const hlo_val_t log = hlo_log(h, x);
  const hlo_val_t distance = hlo_sub(h, log, psi);
  const hlo_val_t pull = hlo_mul(h, distance, out[TERMS]);
  const hlo_val_t difference = hlo_sub(h, out[WEIGHTED], pull);
  const hlo_val_t scale = hlo_div(h, x, a);
  const hlo_val_t slope = hlo_mul(h, scale, difference);
  const hlo_val_t is_zero = map_cmp_k(h, "EQ", x, 0);
  const hlo_val_t grad = map_then_k(h, is_zero, 0, slope);
  op_ret(h, c, 0, grad);
}

/* --- counts ------------------------------------------------------------------------------------------- */

/* Hormann, "The transformed rejection method for generating Poisson random variables" (1993), for means of at least 10;
 * the binomial form is from his "The generation of binomial random variates" (1993). Both draw (u, v), try
 * k = floor((2 a / us + b) u + center), accept a rectangle at once, and else compare with the probability ratio. */
enum { A, B, CENTER, QUICK, SCALE, LOG_SLOPE, LOG_OFFSET, TRIALS, TRANSFORMED_PARAMS };

/* Accepts v where log(v * scale / (a / us^2 + b)) <= k * log_slope - lgamma(k + 1) [- lgamma(trials - k + 1)] - log_offset;
 * |trials| is infinite for Poisson. */
static void propose_count(hlo_t *h, hlo_val_t state, const hlo_val_t *p, hlo_val_t *value, hlo_val_t *accepted) {
  const ttpu_dtype_e t = hlo_dtype(h, p[A]);
  const int rank = hlo_rank(h, p[A]);
  const int64_t *dims = hlo_dims(h, p[A]);
  const hlo_val_t second = random_stream(h, state, UINT64_C(1) << 32);
  const hlo_val_t u01 = random_open(h, state, t, rank, dims), v = random_open(h, second, t, rank, dims);
  const hlo_val_t u = map_add_k(h, u01, -0.5);
  const hlo_val_t distance = hlo_abs(h, u);
  const hlo_val_t us = map_k_sub(h, 0.5, distance);
  const hlo_val_t twice = map_mul_k(h, p[A], 2);
  const hlo_val_t steep = hlo_div(h, twice, us);
  const hlo_val_t slope = hlo_add(h, steep, p[B]);
  const hlo_val_t way = hlo_mul(h, slope, u);
  const hlo_val_t place = hlo_add(h, way, p[CENTER]);
  const hlo_val_t k = hlo_floor(h, place);
  *value = k;

  const hlo_val_t is_wide = map_cmp_k(h, "GE", us, 0.07), is_low = hlo_le(h, v, p[QUICK]);
  const hlo_val_t at_once = hlo_and(h, is_wide, is_low);
  const hlo_val_t not_negative = map_cmp_k(h, "GE", k, 0), not_above = hlo_le(h, k, p[TRIALS]);
  const hlo_val_t is_legal = hlo_and(h, not_negative, not_above);
  const hlo_val_t us2 = hlo_mul(h, us, us);
  const hlo_val_t peak = hlo_div(h, p[A], us2);
  const hlo_val_t height = hlo_add(h, peak, p[B]);
  const hlo_val_t scaled = hlo_mul(h, v, p[SCALE]);
  const hlo_val_t share = hlo_div(h, scaled, height);
  const hlo_val_t log = hlo_log(h, share);
  const hlo_val_t legal = map_else_k(h, is_legal, k, 0);
  const hlo_val_t next = map_add_k(h, legal, 1);
  const hlo_val_t ways = hlo_chlo(h, "lgamma", 1, &next);
  const hlo_val_t is_bounded = hlo_is_finite(h, p[TRIALS]);
  const hlo_val_t trials = map_else_k(h, is_bounded, p[TRIALS], 0);
  const hlo_val_t chosen = map_else_k(h, is_bounded, legal, 0);
  const hlo_val_t others = hlo_sub(h, trials, chosen);
  const hlo_val_t others_next = map_add_k(h, others, 1);
  const hlo_val_t other_ways = hlo_chlo(h, "lgamma", 1, &others_next);
  const hlo_val_t gain = hlo_mul(h, legal, p[LOG_SLOPE]);
  const hlo_val_t after_ways = hlo_sub(h, gain, ways);
  const hlo_val_t after_others = hlo_sub(h, after_ways, other_ways);
  const hlo_val_t bound = hlo_sub(h, after_others, p[LOG_OFFSET]);
  const hlo_val_t is_under = hlo_le(h, log, bound);
  const hlo_val_t fits = hlo_or(h, at_once, is_under);
  *accepted = hlo_and(h, fits, is_legal);
}

EMIT(poisson) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t rate = op_tensor_as(h, c, 0, TTPU_F64), state = op_random_state(h, c);
  const hlo_val_t is_large = map_cmp_k(h, "GE", rate, 10);
  const hlo_val_t is_small = hlo_not(h, is_large);

  const hlo_val_t low = map_else_k(h, is_small, rate, 1);
  const hlo_val_t minus = hlo_neg(h, low);
  const hlo_val_t none = hlo_exp(h, minus);
  const hlo_val_t u = random_half_open(h, state, TTPU_F64, hlo_rank(h, rate), hlo_dims(h, rate));
  const hlo_val_t zero = hlo_full_like(h, rate, 0);
  const hlo_val_t counted = invert(h, u, none, zero, low);

  const hlo_val_t mean = map_else_k(h, is_large, rate, 10);
  const hlo_val_t root = hlo_sqrt(h, mean);
  hlo_val_t p[TRANSFORMED_PARAMS];
  const hlo_val_t spread = map_mul_k(h, root, 2.53);
  p[B] = map_add_k(h, spread, 0.931);
  const hlo_val_t tail = map_mul_k(h, p[B], 0.02483);
  p[A] = map_add_k(h, tail, -0.059);
  p[CENTER] = map_add_k(h, mean, 0.43);
  const hlo_val_t b2 = map_add_k(h, p[B], -2), b3 = map_add_k(h, p[B], -3.4);
  const hlo_val_t lost = map_k_div(h, 3.6224, b2), gained = map_k_div(h, 1.1328, b3);
  p[QUICK] = map_k_sub(h, 0.9277, lost);
  p[SCALE] = map_add_k(h, gained, 1.1239);
  p[LOG_SLOPE] = hlo_log(h, mean);
  p[LOG_OFFSET] = mean;
  p[TRIALS] = hlo_full_like(h, mean, INFINITY);
  const hlo_val_t second = random_stream(h, state, UINT64_C(1) << 40);
  const hlo_val_t x = reject(h, second, is_small, counted, propose_count, TRANSFORMED_PARAMS, p);
  const hlo_val_t is_nan = hlo_is_nan(h, rate);
  const hlo_val_t kept = hlo_select(h, is_nan, rate, x);
  op_ret(h, c, 0, kept);
}

/* Works on the rarer outcome, q = min(p, 1 - p), and turns the count around where p > 1/2. */
EMIT(binomial) {
  if (part_ret_empty(h, c)) return;
  const int rank = op_result_rank(c, 0);
  const int64_t *dims = op_result_dims(c, 0);
  const hlo_val_t given = op_tensor_as(h, c, 0, TTPU_F64), chance = op_tensor_as(h, c, 1, TTPU_F64);
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t n = hlo_expand(h, given, rank, dims), p01 = hlo_expand(h, chance, rank, dims);
  const hlo_val_t opposite = map_k_sub(h, 1, p01);
  const hlo_val_t q = hlo_min(h, p01, opposite);
  const hlo_val_t mean_given = hlo_mul(h, n, q);
  const hlo_val_t is_large = map_cmp_k(h, "GE", mean_given, 10);
  const hlo_val_t is_small = hlo_not(h, is_large);

  const hlo_val_t u = random_half_open(h, state, TTPU_F64, rank, dims);
  const hlo_val_t few = map_else_k(h, is_small, n, 1);
  const hlo_val_t minus_q = hlo_neg(h, q);
  const hlo_val_t log_fail = hlo_log1p(h, minus_q);
  const hlo_val_t log_none = hlo_mul(h, few, log_fail);
  const hlo_val_t none = hlo_exp(h, log_none);
  const hlo_val_t fail = map_k_sub(h, 1, q);
  const hlo_val_t odds = hlo_div(h, q, fail);
  const hlo_val_t slope = hlo_neg(h, odds), offset = hlo_mul(h, few, odds);
  const hlo_val_t inverted = invert(h, u, none, slope, offset);
  const hlo_val_t counted = hlo_min(h, inverted, few); /* u may lie above the rounded sum of all */

  const hlo_val_t m = map_else_k(h, is_large, n, 100), s = map_else_k(h, is_large, q, 0.5);
  const hlo_val_t f = map_k_sub(h, 1, s);
  const hlo_val_t mean = hlo_mul(h, m, s);
  const hlo_val_t variance = hlo_mul(h, mean, f);
  const hlo_val_t deviation = hlo_sqrt(h, variance);
  hlo_val_t p[TRANSFORMED_PARAMS];
  const hlo_val_t spread = map_mul_k(h, deviation, 2.53);
  p[B] = map_add_k(h, spread, 1.15);
  const hlo_val_t tail = map_mul_k(h, p[B], 0.0248), lean = map_mul_k(h, s, 0.01);
  const hlo_val_t both = hlo_add(h, tail, lean);
  p[A] = map_add_k(h, both, -0.0873);
  p[CENTER] = map_add_k(h, mean, 0.5);
  const hlo_val_t lost = map_k_div(h, 4.2, p[B]), gained = map_k_div(h, 5.1, p[B]);
  p[QUICK] = map_k_sub(h, 0.92, lost);
  const hlo_val_t factor = map_add_k(h, gained, 2.83);
  p[SCALE] = hlo_mul(h, factor, deviation);
  const hlo_val_t ratio = hlo_div(h, s, f);
  p[LOG_SLOPE] = hlo_log(h, ratio);
  /* The offset is the same expression at the mode, so that the ratio there is 1. */
  const hlo_val_t more = map_add_k(h, m, 1);
  const hlo_val_t at = hlo_mul(h, more, s);
  const hlo_val_t top = hlo_floor(h, at);
  const hlo_val_t top_next = map_add_k(h, top, 1), rest = hlo_sub(h, m, top);
  const hlo_val_t rest_next = map_add_k(h, rest, 1);
  const hlo_val_t top_ways = hlo_chlo(h, "lgamma", 1, &top_next), rest_ways = hlo_chlo(h, "lgamma", 1, &rest_next);
  const hlo_val_t gain = hlo_mul(h, top, p[LOG_SLOPE]);
  const hlo_val_t after = hlo_sub(h, gain, top_ways);
  p[LOG_OFFSET] = hlo_sub(h, after, rest_ways);
  p[TRIALS] = m;
  const hlo_val_t second = random_stream(h, state, UINT64_C(1) << 40);
  const hlo_val_t rarer = reject(h, second, is_small, counted, propose_count, TRANSFORMED_PARAMS, p);
  const hlo_val_t turned = hlo_sub(h, n, rarer);
  const hlo_val_t is_likely = map_cmp_k(h, "GT", p01, 0.5);
  const hlo_val_t x = hlo_select(h, is_likely, turned, rarer);
  op_ret(h, c, 0, x);
}
