/* factory.c: sequences and the identity. Constant fills are in map.c. */
#include <string.h>

#include "ops/part.h"

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

/* Positions sorted by 64 random bits each. */
static void by_key(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_lt(h, args[0], args[1]);
}

EMIT(randperm) {
  if (part_ret_empty(h, c)) return;
  const int64_t *dims = op_result_dims(c, 0);
  const hlo_val_t state = op_random_state(h, c);
  const hlo_val_t keys = hlo_random_bits(h, state, TTPU_U64, 1, dims);
  const hlo_val_t places = hlo_iota(h, part_index_dtype(dims[0]), 1, dims, 0);
  const hlo_val_t xs[] = {keys, places};
  hlo_val_t out[2] = {0, 0};
  hlo_sort(h, 2, xs, 0, true, by_key, NULL, out);
  op_ret(h, c, 0, out[1]);
}
