/* factory.c: sequences and the identity. Constant fills are in map.c. */
#include <string.h>

#include "ops/random.h"

/* A number of the call as a constant; a Python int keeps all its bits. */
static hlo_val_t literal(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e t) {
  const bool is_int = !map_is_inexact(op_arg_dtype(c, i));
  if (t == TTPU_I64) return hlo_const_int(h, t, is_int ? op_int(c, i, 0) : (int64_t)op_number(h, c, i, 0));
  return hlo_const(h, t, op_number(h, c, i, 0));
}

/* Integers are exact in i64; floats are computed in f64, as CPU PyTorch does, and rounded once. */
EMIT(arange) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0);
  const bool exact = ttpu_dtype_is_int(r);
  const ttpu_dtype_e t = exact ? TTPU_I64 : TTPU_F64;
  const hlo_val_t i = hlo_iota(h, t, 1, op_result_dims(c, 0), 0);
  const hlo_val_t first = literal(h, c, 0, t), by = literal(h, c, 2, t);
  const hlo_val_t way = hlo_mul(h, i, by);
  const hlo_val_t all = hlo_add(h, first, way);
  op_ret(h, c, 0, all);
}

/* The first half counts up from start, the second down from end, so that both ends are exact. Integer results step in
 * f64 between limits that were cut to integers first. */
EMIT(linspace) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e r = op_result_dtype(c, 0);
  const bool is_power = !strcmp(op_detail(c), "power");
  const ttpu_dtype_e t = map_is_inexact(r) ? map_wide(r) : TTPU_F64;
  const int64_t steps = op_result_dims(c, 0)[0];
  hlo_val_t start = op_scalar(h, c, 0, map_is_inexact(r) ? t : r), end = op_scalar(h, c, 1, map_is_inexact(r) ? t : r);
  start = hlo_convert(h, start, t), end = hlo_convert(h, end, t);
  const hlo_val_t i = hlo_iota(h, TTPU_I64, 1, &steps, 0);
  const hlo_val_t last = hlo_const_int(h, TTPU_I64, steps - 1), half = hlo_const_int(h, TTPU_I64, steps / 2);
  const hlo_val_t intervals = hlo_const(h, t, steps > 1 ? (double)(steps - 1) : 1);
  const hlo_val_t width = hlo_sub(h, end, start);
  const hlo_val_t step = hlo_div(h, width, intervals);
  const hlo_val_t left = hlo_sub(h, last, i);
  const hlo_val_t up_count = hlo_convert(h, i, t), down_count = hlo_convert(h, left, t);
  const hlo_val_t up = hlo_mul(h, up_count, step), down = hlo_mul(h, down_count, step);
  const hlo_val_t from_start = hlo_add(h, start, up), from_end = hlo_sub(h, end, down);
  const hlo_val_t is_first_half = hlo_lt(h, i, half);
  hlo_val_t all = steps == 1 ? hlo_expand(h, start, 1, &steps) : hlo_select(h, is_first_half, from_start, from_end);
  if (is_power) {
    const hlo_val_t base = op_scalar(h, c, 3, TTPU_F64);
    const hlo_val_t b = hlo_convert(h, base, t);
    const hlo_val_t bases = hlo_expand_like(h, b, all);
    all = hlo_pow(h, bases, all);
  }
  op_ret(h, c, 0, all);
}

EMIT(eye) {
  if (part_ret_empty(h, c)) return;
  const int64_t *dims = op_result_dims(c, 0);
  const hlo_val_t row = hlo_iota(h, TTPU_I32, 2, dims, 0), column = hlo_iota(h, TTPU_I32, 2, dims, 1);
  const hlo_val_t equal = hlo_eq(h, row, column);
  op_ret(h, c, 0, equal);
}

/* Positions in the order of random words; the low bits of a word hold its position. Of 1,000,000 that leaves 44 random
 * bits, and the chance of one equal pair is 3%: then the two keep their order. */
static void lower_word(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_lt(h, args[0], args[1]);
}

EMIT(randperm) {
  if (part_ret_empty(h, c)) return;
  const int64_t *dims = op_result_dims(c, 0);
  int bits = 1;
  while (bits < 63 && dims[0] >> bits) bits++;
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t random = random_bits(h, state, TTPU_U64, 1, dims);
  const hlo_val_t places = hlo_iota(h, TTPU_U64, 1, dims, 0), width = hlo_const_int(h, TTPU_U64, bits);
  const hlo_val_t high = hlo_shl(h, random, width);
  const hlo_val_t word = hlo_or(h, high, places);
  hlo_val_t sorted = 0;
  hlo_sort(h, 1, &word, 0, false, lower_word, NULL, &sorted);
  const hlo_val_t mask = hlo_const_int(h, TTPU_U64, (int64_t)(((uint64_t)1 << bits) - 1));
  const hlo_val_t order = hlo_and(h, sorted, mask);
  op_ret(h, c, 0, order);
}
