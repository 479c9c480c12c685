/* random.c: the generator, and distributions drawn from it in closed form: a fixed number of bits an element. Those that reject
 * are in random_reject.c.
 */
#include "ops/random.h"

#include <math.h>
#include <string.h>

/* --- bits to numbers ---------------------------------------------------------------------------------- */

/* An odd constant spreads stream numbers over the whole key. */
static const uint64_t stream_step = 0x9e3779b97f4a7c15u;

hlo_val_t random_stream(hlo_t *h, hlo_val_t state, uint64_t k) {
  const int64_t words[] = {(int64_t)(k * stream_step), 0};
  const hlo_val_t change = hlo_const_ints(h, TTPU_U64, 2, words);
  return hlo_xor(h, state, change);
}

hlo_val_t random_stream_at(hlo_t *h, hlo_val_t state, hlo_val_t k) {
  const int64_t one = 1;
  const hlo_val_t step = hlo_const_int(h, TTPU_U64, (int64_t)stream_step);
  const hlo_val_t key = hlo_mul(h, k, step);
  const hlo_val_t word = hlo_reshape(h, key, 1, &one);
  const hlo_val_t change = hlo_pad_dim(h, word, 0, 0, 0, 1);
  return hlo_xor(h, state, change);
}

/* Threefry-2x32 with 20 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011): the key is the seed,
 * the counter offset + position. Adds, rotations and xors of u32 alone, so it fuses with what uses the numbers and runs in
 * vector units everywhere; StableHLO's own generator takes 3 to 25 times as long on the CPU plugin. */
static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};

static void split_word(hlo_t *h, hlo_val_t word, hlo_val_t *low, hlo_val_t *high) {
  const hlo_val_t half = hlo_const_int(h, TTPU_U64, 32);
  const hlo_val_t above = hlo_shr_logical(h, word, half);
  *low = hlo_convert(h, word, TTPU_U32);
  *high = hlo_convert(h, above, TTPU_U32);
}

static hlo_val_t state_word(hlo_t *h, hlo_val_t state, int64_t i) {
  const hlo_val_t word = hlo_slice_dim(h, state, 0, i, i + 1, 1);
  return hlo_squeeze(h, word, 0);
}

hlo_val_t random_bits(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims) {
  if (hlo_failed(h)) return 0;
  const int64_t numel = ttpu_dims_numel(rank, dims);
  const hlo_val_t seed = state_word(h, state, 0), offset = state_word(h, state, 1);
  hlo_val_t key[3];
  split_word(h, seed, &key[0], &key[1]);
  const hlo_val_t both = hlo_xor(h, key[0], key[1]), parity = hlo_const_int(h, TTPU_U32, 0x1bd11bda);
  key[2] = hlo_xor(h, both, parity);
  const hlo_val_t place = hlo_iota(h, TTPU_U64, 1, &numel, 0);
  const hlo_val_t counter = hlo_add(h, place, offset);
  hlo_val_t a, b;
  split_word(h, counter, &a, &b);
  a = hlo_add(h, a, key[0]);
  b = hlo_add(h, b, key[1]);
  for (int i = 0; i < 5; i++) {
    for (int r = 0; r < 4; r++) {
      const int by = rotations[i % 2][r];
      const hlo_val_t left = hlo_const_int(h, TTPU_U32, by), right = hlo_const_int(h, TTPU_U32, 32 - by);
      a = hlo_add(h, a, b);
      const hlo_val_t up = hlo_shl(h, b, left), down = hlo_shr_logical(h, b, right);
      const hlo_val_t rotated = hlo_or(h, up, down);
      b = hlo_xor(h, rotated, a);
    }
    const hlo_val_t round = hlo_const_int(h, TTPU_U32, i + 1);
    const hlo_val_t numbered = hlo_add(h, key[(i + 2) % 3], round);
    a = hlo_add(h, a, key[(i + 1) % 3]);
    b = hlo_add(h, b, numbered);
  }
  hlo_val_t word;
  if (t == TTPU_U64) {
    const hlo_val_t half = hlo_const_int(h, TTPU_U64, 32);
    const hlo_val_t low = hlo_convert(h, b, TTPU_U64), high = hlo_convert(h, a, TTPU_U64);
    const hlo_val_t shifted = hlo_shl(h, high, half);
    word = hlo_or(h, shifted, low);
  } else {
    word = hlo_xor(h, a, b);
  }
  return hlo_reshape(h, word, rank, dims);
}

/* The highest |keep| bits of an element of |t|'s width, as a float of |t|. */
static hlo_val_t high_bits(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int keep, int rank, const int64_t *dims) {
  const ttpu_dtype_e bits_type = t == TTPU_F64 ? TTPU_U64 : TTPU_U32;
  const hlo_val_t bits = random_bits(h, state, bits_type, rank, dims);
  const hlo_val_t drop = hlo_const_int(h, bits_type, (t == TTPU_F64 ? 64 : 32) - keep);
  const hlo_val_t kept = hlo_shr_logical(h, bits, drop);
  return hlo_convert(h, kept, t);
}

hlo_val_t random_half_open(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims) {
  const int keep = t == TTPU_F64 ? 53 : 24;
  const hlo_val_t whole = high_bits(h, state, t, keep, rank, dims);
  return map_mul_k(h, whole, ldexp(1, -keep));
}

hlo_val_t random_open(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims) {
  const int keep = t == TTPU_F64 ? 52 : 23; /* one bit less: the half must still be exact */
  const hlo_val_t whole = high_bits(h, state, t, keep, rank, dims);
  const hlo_val_t middle = map_add_k(h, whole, 0.5);
  return map_mul_k(h, middle, ldexp(1, -keep));
}

/* The magnitude by the inverse of the normal's distribution, the sign by the lowest bit. */
hlo_val_t random_normal(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims) {
  const int keep = t == TTPU_F64 ? 52 : 23;
  const ttpu_dtype_e bits_type = t == TTPU_F64 ? TTPU_U64 : TTPU_U32;
  const hlo_val_t bits = random_bits(h, state, bits_type, rank, dims);
  const hlo_val_t drop = hlo_const_int(h, bits_type, (t == TTPU_F64 ? 64 : 32) - keep), one = hlo_const_int(h, bits_type, 1);
  const hlo_val_t kept = hlo_shr_logical(h, bits, drop);
  const hlo_val_t whole = hlo_convert(h, kept, t);
  const hlo_val_t middle = map_add_k(h, whole, 0.5);
  const hlo_val_t probability = map_mul_k(h, middle, ldexp(1, -keep));
  const hlo_val_t quantile = hlo_chlo(h, "erf_inv", 1, &probability);
  const hlo_val_t magnitude = map_mul_k(h, quantile, 1.4142135623730951);
  const hlo_val_t low = hlo_and(h, bits, one);
  const hlo_val_t is_negative = hlo_eq(h, low, one);
  const hlo_val_t opposite = hlo_neg(h, magnitude);
  return hlo_select(h, is_negative, opposite, magnitude);
}

/* --- continuous --------------------------------------------------------------------------------------- */

static ttpu_dtype_e compute_type(ttpu_dtype_e result) {
  return ttpu_dtype_real(result) == TTPU_F64 ? TTPU_F64 : TTPU_F32;
}

/* The limits are rounded to the result's type first. Rounding may reach the upper one, which is then the lower. */
EMIT(uniform) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0), t = compute_type(r);
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t u = random_half_open(h, state, t, op_result_rank(c, 0), op_result_dims(c, 0));
  const hlo_val_t from = op_scalar(h, c, 1, r), to = op_scalar(h, c, 2, r);
  const hlo_val_t low = hlo_convert(h, from, t), high = hlo_convert(h, to, t);
  const hlo_val_t width = hlo_sub(h, high, low);
  const hlo_val_t way = hlo_mul(h, u, width);
  const hlo_val_t exact = hlo_add(h, low, way);
  const hlo_val_t rounded = hlo_convert(h, exact, r);
  const hlo_val_t is_inside = hlo_lt(h, rounded, to);
  const hlo_val_t inside = hlo_select(h, is_inside, rounded, from);
  op_ret(h, c, 0, inside);
}

/* A complex one has independent parts of half the variance around |mean|, as in PyTorch. */
EMIT(normal) {
  if (part_ret_empty(h, c)) return;
  const char *kind = op_detail(c);
  const ttpu_dtype_e r = op_result_dtype(c, 0), t = compute_type(r);
  const int rank = op_result_rank(c, 0);
  const int64_t *dims = op_result_dims(c, 0);
  const bool mean_is_tensor = !strcmp(kind, "mean") || !strcmp(kind, "both");
  const bool std_is_tensor = !strcmp(kind, "std") || !strcmp(kind, "both");
  const int first = !strcmp(kind, "fill") || !strcmp(kind, "exp") ? 1 : 0;
  const hlo_val_t state = op_random_state(h, c);
  hlo_val_t z = random_normal(h, state, t, rank, dims);
  if (ttpu_dtype_is_complex(r)) {
    const hlo_val_t second = random_stream(h, state, 1);
    const hlo_val_t im = random_normal(h, second, t, rank, dims);
    const hlo_val_t half_re = map_mul_k(h, z, sqrt(0.5)), half_im = map_mul_k(h, im, sqrt(0.5));
    z = hlo_complex(h, half_re, half_im);
  }
  const ttpu_dtype_e zt = ttpu_dtype_is_complex(r) ? r : t;
  hlo_val_t mean = mean_is_tensor ? op_tensor_as(h, c, first, zt) : op_scalar(h, c, first, t);
  const hlo_val_t std = std_is_tensor ? op_tensor_as(h, c, first + 1, zt) : op_scalar(h, c, first + 1, zt);
  if (ttpu_dtype_is_complex(r) && !mean_is_tensor) mean = hlo_complex(h, mean, mean);
  const hlo_val_t spread = hlo_mul(h, z, std);
  hlo_val_t x = hlo_add(h, spread, mean);
  if (!strcmp(kind, "exp")) x = hlo_exp(h, x);
  op_ret(h, c, 0, x);
}

static hlo_val_t open_like_result(hlo_t *h, const op_call_t *c, ttpu_dtype_e t) {
  const hlo_val_t state = op_random_state(h, c);
  return random_open(h, state, t, op_result_rank(c, 0), op_result_dims(c, 0));
}

EMIT(cauchy) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = compute_type(op_result_dtype(c, 0));
  const hlo_val_t u = open_like_result(h, c, t);
  const hlo_val_t median = op_scalar(h, c, 1, t), sigma = op_scalar(h, c, 2, t);
  const hlo_val_t centered = map_add_k(h, u, -0.5);
  const hlo_val_t angle = map_mul_k(h, centered, M_PI);
  const hlo_val_t slope = hlo_tan(h, angle);
  const hlo_val_t spread = hlo_mul(h, slope, sigma);
  const hlo_val_t x = hlo_add(h, spread, median);
  op_ret(h, c, 0, x);
}

EMIT(exponential) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = compute_type(op_result_dtype(c, 0));
  const hlo_val_t u = open_like_result(h, c, t);
  const hlo_val_t rate = op_scalar(h, c, 1, t);
  const hlo_val_t log = hlo_log(h, u);
  const hlo_val_t negative = hlo_neg(h, log);
  const hlo_val_t x = hlo_div(h, negative, rate);
  op_ret(h, c, 0, x);
}

EMIT(geometric) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = compute_type(op_result_dtype(c, 0));
  const hlo_val_t u = open_like_result(h, c, t);
  const hlo_val_t p = op_scalar(h, c, 1, t);
  const hlo_val_t minus = hlo_neg(h, p);
  const hlo_val_t failure = hlo_log1p(h, minus);
  const hlo_val_t log = hlo_log(h, u);
  const hlo_val_t trials = hlo_div(h, log, failure);
  const hlo_val_t whole = hlo_ceil(h, trials);
  const hlo_val_t x = map_max_k(h, whole, 1); /* p = 1 gives 0 */
  op_ret(h, c, 0, x);
}

/* --- discrete ----------------------------------------------------------------------------------------- */

/* Integers in [0, range): the high half of 32 bits times the range, or 64 bits modulo a wide range. */
static hlo_val_t below(hlo_t *h, hlo_val_t state, uint64_t range, int rank, const int64_t *dims) {
  const hlo_val_t factor = hlo_const_int(h, TTPU_U64, (int64_t)range);
  if (range > UINT32_MAX) {
    const hlo_val_t bits = random_bits(h, state, TTPU_U64, rank, dims);
    return hlo_rem(h, bits, factor);
  }
  const hlo_val_t bits = random_bits(h, state, TTPU_U32, rank, dims);
  const hlo_val_t wide = hlo_convert(h, bits, TTPU_U64);
  const hlo_val_t product = hlo_mul(h, wide, factor);
  const hlo_val_t shift = hlo_const_int(h, TTPU_U64, 32);
  return hlo_shr_logical(h, product, shift);
}

/* The greatest integer random_ draws for |t|: all of an integer type, and what a float type counts to exactly. */
static uint64_t greatest(ttpu_dtype_e t) {
  switch (t) {
    case TTPU_BOOL: return 1;
    case TTPU_F64: return (uint64_t)1 << 53;
    case TTPU_F32: return (uint64_t)1 << 24;
    case TTPU_F16: return (uint64_t)1 << 11;
    case TTPU_BF16: return (uint64_t)1 << 8;
    case TTPU_U64: return UINT64_MAX;
    default: break;
  }
  const int bits = (int)(8 * ttpu_dtype_bytes(t));
  return ((uint64_t)1 << (ttpu_dtype_kind(t) == 'u' ? bits : bits - 1)) - 1;
}

EMIT(random) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0);
  const int rank = op_result_rank(c, 0);
  const int64_t *dims = op_result_dims(c, 0);
  const bool has_from = !strcmp(op_detail(c), "from"), has_to = !strcmp(op_detail(c), "to") || (has_from && op_has(c, 2));
  const int64_t from = has_from ? op_int(c, 1, 0) : 0;
  const uint64_t end = has_to ? (uint64_t)op_int(c, has_from ? 2 : 1, 0) : greatest(r) + 1;
  const uint64_t range = end - (uint64_t)from; /* 0: all 2^64 */
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t drawn = range ? below(h, state, range, rank, dims) : random_bits(h, state, TTPU_U64, rank, dims);
  if (!ttpu_dtype_is_int(r) && from >= 0) {
    const hlo_val_t base = hlo_const_int(h, TTPU_U64, from);
    const hlo_val_t x = hlo_add(h, drawn, base);
    op_ret(h, c, 0, x);
    return;
  }
  const ttpu_dtype_e t = r == TTPU_U64 ? TTPU_U64 : TTPU_I64;
  const hlo_val_t offset = hlo_convert(h, drawn, t); /* modulo 2^64, as is the sum */
  const hlo_val_t base = hlo_const_int(h, t, from);
  const hlo_val_t x = hlo_add(h, offset, base);
  op_ret(h, c, 0, x);
}

/* A number compares 32 bits with p * 2^32, which holds probabilities that a f32 number in [0, 1) could not. */
EMIT(bernoulli) {
  if (part_ret_empty(h, c)) return;
  const int rank = op_result_rank(c, 0);
  const int64_t *dims = op_result_dims(c, 0);
  const hlo_val_t state = op_random_state(h, c);
  hlo_val_t drawn;
  if (!strcmp(op_detail(c), "number")) {
    const hlo_val_t p = op_scalar(h, c, 1, TTPU_F64);
    const hlo_val_t scaled = map_mul_k(h, p, 4294967296.0);
    const hlo_val_t wide = hlo_convert(h, scaled, TTPU_U64);
    const hlo_val_t bits = random_bits(h, state, TTPU_U32, rank, dims);
    const hlo_val_t most = hlo_const_int(h, TTPU_U64, UINT32_MAX);
    const hlo_val_t capped = hlo_min(h, wide, most);
    const hlo_val_t limit = hlo_convert(h, capped, TTPU_U32);
    const hlo_val_t is_below = hlo_lt(h, bits, limit);
    const hlo_val_t is_sure = map_cmp_k(h, "GE", p, 1);
    drawn = hlo_or(h, is_below, is_sure);
  } else {
    const int arg = !strcmp(op_detail(c), "tensor") ? 1 : 0;
    const ttpu_dtype_e t = op_arg_dtype(c, arg) == TTPU_F64 ? TTPU_F64 : TTPU_F32;
    const hlo_val_t p = op_tensor_as(h, c, arg, t);
    const hlo_val_t u = random_half_open(h, state, t, rank, dims);
    drawn = hlo_lt(h, u, p);
  }
  op_ret(h, c, 0, drawn);
}

/* Without replacement: the num_samples greatest of log(weight) + Gumbel noise; here as weight over an exponential variate,
 * whose order is the same. With it: the running sum of weights is searched for uniform numbers. */
EMIT(multinomial) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = op_arg_dtype(c, 0) == TTPU_F64 ? TTPU_F64 : TTPU_F32;
  const hlo_val_t given = op_tensor_as(h, c, 0, t);
  if (hlo_failed(h)) return;
  const int64_t n = hlo_dim(h, given, -1), k = op_int(c, 1, 1);
  const hlo_val_t weights = part_batched(h, given, 1);
  const hlo_val_t state = op_random_state(h, c);
  if (hlo_failed(h)) return;
  const int64_t rows = hlo_dim(h, weights, 0);
  hlo_val_t picked;
  if (op_bool(c, 2, false)) {
    const int64_t dims[] = {rows, k};
    const hlo_val_t sums = part_prefix(h, "add", weights, 1);
    const hlo_val_t total = hlo_slice_dim(h, sums, 1, n - 1, n, 1);
    const hlo_val_t u = random_half_open(h, state, t, 2, dims);
    const hlo_val_t target = hlo_mul(h, u, total);
    const hlo_val_t place = part_bisect(h, sums, target, true);
    /* Rounding may reach the total: never beyond the last position that has a weight. */
    const hlo_val_t position = hlo_iota_like(h, hlo_dtype(h, place), weights, 1);
    const hlo_val_t has_weight = map_cmp_k(h, "GT", weights, 0);
    const hlo_val_t possible = map_else_k(h, has_weight, position, 0);
    const hlo_val_t last = hlo_reduce_dim(h, "maximum", possible, 1);
    const hlo_val_t limit = hlo_unsqueeze(h, last, 1);
    picked = hlo_min(h, place, limit);
  } else {
    const hlo_val_t u = random_open(h, state, t, 2, hlo_dims(h, weights));
    const hlo_val_t log = hlo_log(h, u);
    const hlo_val_t wait = hlo_neg(h, log);
    const hlo_val_t key = hlo_div(h, weights, wait);
    hlo_val_t values;
    part_top(h, key, 1, k, true, &values, &picked);
  }
  const hlo_val_t shaped = part_as_result(h, c, 0, picked);
  op_ret(h, c, 0, shaped);
}

/* Result 1 is the noise: the slope that each element was multiplied with. */
EMIT(rrelu) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0), t = compute_type(r);
  const hlo_val_t x = op_tensor_as(h, c, 0, t);
  const hlo_val_t low = op_scalar(h, c, 2, t), high = op_scalar(h, c, 3, t);
  if (!op_bool(c, 4, false)) {
    const hlo_val_t sum = hlo_add(h, low, high);
    const hlo_val_t slope = map_mul_k(h, sum, 0.5);
    const hlo_val_t is_positive = map_cmp_k(h, "GT", x, 0);
    const hlo_val_t small = hlo_mul(h, x, slope);
    const hlo_val_t y = hlo_select(h, is_positive, x, small);
    const hlo_val_t noise = op_tensor(h, c, 1);
    op_ret(h, c, 0, y);
    op_ret(h, c, 1, noise);
    return;
  }
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t u = random_half_open(h, state, t, op_result_rank(c, 0), op_result_dims(c, 0));
  const hlo_val_t width = hlo_sub(h, high, low);
  const hlo_val_t way = hlo_mul(h, u, width);
  const hlo_val_t slope = hlo_add(h, low, way);
  const hlo_val_t is_small = map_cmp_k(h, "LE", x, 0);
  const hlo_val_t factor = map_else_k(h, is_small, slope, 1);
  const hlo_val_t noise = hlo_convert(h, factor, r);
  const hlo_val_t rounded = hlo_convert(h, noise, t);
  const hlo_val_t y = hlo_mul(h, x, rounded);
  op_ret(h, c, 0, y);
  op_ret(h, c, 1, noise);
}
