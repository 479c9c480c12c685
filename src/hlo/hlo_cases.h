/* hlo_cases.h: one small module for each group of primitives, shared by the golden test and by tests/py/test_hlo.py, which
 * compiles and runs them all. A case makes its parameters and fills |out|; it returns how many results there are.
 */
#ifndef TTPU_HLO_HLO_CASES_H_
#define TTPU_HLO_HLO_CASES_H_

#include <math.h>

#include "hlo/hlo.h"

enum { CASE_RESULTS = 128 };
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define DIMS(...) COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__}
#define ARRAY(...) (const int64_t[]){__VA_ARGS__}
#define INTS(...) (const int[]){__VA_ARGS__}

static hlo_val_t param(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims) {
  return hlo_parameter(h, dtype, rank, dims, NULL);
}

/* --- elementwise --- */

static int unary_float(hlo_t *h, ttpu_dtype_e dtype, hlo_val_t *out) {
  const hlo_val_t x = param(h, dtype, DIMS(2, 3)), y = param(h, dtype, DIMS(2, 3));
  static const char *const ops[] = {"exponential", "exponential_minus_one", "log", "log_plus_one", "sqrt", "rsqrt",
                                    "cbrt", "sine", "cosine", "tan", "tanh", "logistic"};
  int n = 0;
  for (int i = 0; i < COUNT(ops); i++) out[n++] = hlo_un(h, ops[i], x);
  out[n++] = hlo_abs(h, y);
  out[n++] = hlo_neg(h, y);
  out[n++] = hlo_floor(h, y);
  out[n++] = hlo_ceil(h, y);
  out[n++] = hlo_round(h, y);
  out[n++] = hlo_sign(h, y);
  out[n++] = hlo_is_finite(h, hlo_log(h, y));
  out[n++] = hlo_is_nan(h, hlo_log(h, y));
  out[n++] = hlo_imag(h, y);
  return n;
}
static int unary_f16(hlo_t *h, hlo_val_t *out) { return unary_float(h, TTPU_F16, out); }
static int unary_bf16(hlo_t *h, hlo_val_t *out) { return unary_float(h, TTPU_BF16, out); }
static int unary_f32(hlo_t *h, hlo_val_t *out) { return unary_float(h, TTPU_F32, out); }
static int unary_f64(hlo_t *h, hlo_val_t *out) { return unary_float(h, TTPU_F64, out); }

static int unary_c64(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_C64, DIMS(5));
  static const char *const ops[] = {"exponential", "exponential_minus_one", "log", "log_plus_one", "sqrt", "rsqrt",
                                    "sine", "cosine", "tan", "tanh", "logistic", "negate", "sign"};
  int n = 0;
  for (int i = 0; i < COUNT(ops); i++) out[n++] = hlo_un(h, ops[i], x);
  out[n++] = hlo_abs(h, x);
  out[n++] = hlo_real(h, x);
  out[n++] = hlo_imag(h, x);
  out[n++] = hlo_is_finite(h, x);
  out[n++] = hlo_is_nan(h, x);
  return n;
}

static int unary_int(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_I32, DIMS(6)), u = param(h, TTPU_U8, DIMS(6)), b = param(h, TTPU_BOOL, DIMS(6));
  int n = 0;
  out[n++] = hlo_neg(h, x);
  out[n++] = hlo_abs(h, x);
  out[n++] = hlo_not(h, x);
  out[n++] = hlo_sign(h, x);
  out[n++] = hlo_popcnt(h, u);
  out[n++] = hlo_clz(h, u);
  out[n++] = hlo_abs(h, u);
  out[n++] = hlo_not(h, b);
  out[n++] = hlo_is_finite(h, x);
  out[n++] = hlo_is_nan(h, u);
  return n;
}

/* Two operands that broadcast against each other; the last ops only of some kinds. */
static int binary(hlo_t *h, ttpu_dtype_e dtype, int count, const char *const *ops, hlo_val_t *out) {
  const hlo_val_t a = param(h, dtype, DIMS(2, 1, 3)), b = param(h, dtype, DIMS(4, 1));
  for (int i = 0; i < count; i++) out[i] = hlo_bin(h, ops[i], a, b);
  return count;
}
static const char *const float_ops[] = {"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum",
                                        "power", "atan2"};
static const char *const int_ops[] = {"add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor",
                                      "divide", "remainder"};
static const char *const bool_ops[] = {"add", "multiply", "maximum", "minimum", "and", "or", "xor"};
static const char *const complex_ops[] = {"add", "subtract", "multiply", "divide", "power"};
static int binary_f16(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_F16, 7, float_ops, out); }
static int binary_bf16(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_BF16, 7, float_ops, out); }
static int binary_f32(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_F32, 9, float_ops, out); }
static int binary_f64(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_F64, 9, float_ops, out); }
static int binary_i64(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_I64, 10, int_ops, out); }
static int binary_i8(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_I8, 10, int_ops, out); }
static int binary_u8(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_U8, 10, int_ops, out); }
static int binary_bool(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_BOOL, 7, bool_ops, out); }
static int binary_c64(hlo_t *h, hlo_val_t *out) { return binary(h, TTPU_C64, 5, complex_ops, out); }

/* Extrema with NaN: against a number, a NaN constant, and in a reduction long enough to be vectorised. */
static int nan_extrema(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(8, 100));
  int n = 0;
  for (int k = 0; k < 2; k++) {
    const char *op = k ? "minimum" : "maximum";
    out[n++] = hlo_bin(h, op, x, hlo_like(h, x, 0.5));
    out[n++] = hlo_bin(h, op, hlo_like(h, x, 0.5), x);
    out[n++] = hlo_bin(h, op, x, hlo_like(h, x, NAN));
    out[n++] = hlo_bin(h, op, x, hlo_reverse(h, x, 1, INTS(1)));
    for (int d = 0; d < 2; d++) {
      out[n++] = hlo_reduce_dim(h, op, x, d);
      out[n++] = hlo_reduce_dim(h, op, hlo_convert(h, x, TTPU_BF16), d);
    }
    out[n++] = hlo_reduce_window(h, op, x, hlo_like(h, x, 0), ARRAY(1, 3), NULL, NULL, NULL, NULL, NULL);
  }
  return n;
}

static int shifts(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_I32, DIMS(6)), u = param(h, TTPU_U8, DIMS(6));
  out[0] = hlo_shl(h, x, hlo_like(h, x, 3));
  out[1] = hlo_shr(h, x, hlo_like(h, x, 2));
  out[2] = hlo_shr_logical(h, u, hlo_like(h, u, 2));
  return 3;
}

static int compare(hlo_t *h, ttpu_dtype_e dtype, int count, hlo_val_t *out) {
  static const char *const directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  const hlo_val_t a = param(h, dtype, DIMS(4, 1)), b = param(h, dtype, DIMS(4));
  for (int i = 0; i < count; i++) out[i] = hlo_cmp(h, directions[i], a, b);
  return count;
}
static int compare_f32(hlo_t *h, hlo_val_t *out) { return compare(h, TTPU_F32, 6, out); }
static int compare_bf16(hlo_t *h, hlo_val_t *out) { return compare(h, TTPU_BF16, 6, out); }
static int compare_i64(hlo_t *h, hlo_val_t *out) { return compare(h, TTPU_I64, 6, out); }
static int compare_u8(hlo_t *h, hlo_val_t *out) { return compare(h, TTPU_U8, 6, out); }
static int compare_bool(hlo_t *h, hlo_val_t *out) { return compare(h, TTPU_BOOL, 6, out); }
static int compare_c64(hlo_t *h, hlo_val_t *out) { return compare(h, TTPU_C64, 2, out); }

static int compare_total(hlo_t *h, hlo_val_t *out) {
  static const char *const directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  const double values[] = {-INFINITY, -1, -0.0, 0, 1, INFINITY, NAN, -NAN};
  const hlo_val_t row = hlo_const_doubles(h, TTPU_F32, COUNT(values), values);
  const hlo_val_t column = hlo_unsqueeze(h, row, 1);
  for (int i = 0; i < 6; i++) out[i] = hlo_cmp_total(h, directions[i], column, row);
  return 6;
}

static int selects(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t p = param(h, TTPU_BOOL, DIMS(3)), s = param(h, TTPU_BOOL, 0, NULL);
  const hlo_val_t a = param(h, TTPU_F32, DIMS(2, 3)), b = param(h, TTPU_F32, DIMS(2, 1));
  out[0] = hlo_select(h, p, a, b);
  out[1] = hlo_select(h, s, a, b);
  out[2] = hlo_select(h, p, hlo_like(h, a, 1), hlo_like(h, a, 2));
  return 3;
}

/* |x| in (0.1, 0.9), |y| in (-3, 3), |z| over 1. */
static int chlo_float(hlo_t *h, ttpu_dtype_e dtype, hlo_val_t *out) {
  const hlo_val_t x = param(h, dtype, DIMS(5)), y = param(h, dtype, DIMS(5)), z = param(h, dtype, DIMS(5));
  static const char *const in_unit[] = {"asin", "acos", "atanh", "erf_inv", "digamma"};
  static const char *const anywhere[] = {"erf", "erfc", "lgamma", "atan", "sinh", "cosh", "asinh", "bessel_i1e",
                                         "is_inf", "is_pos_inf", "is_neg_inf", "square"};
  int n = 0;
  for (int i = 0; i < COUNT(in_unit); i++) out[n++] = hlo_chlo(h, in_unit[i], 1, &x);
  for (int i = 0; i < COUNT(anywhere); i++) out[n++] = hlo_chlo(h, anywhere[i], 1, &y);
  out[n++] = hlo_chlo(h, "acosh", 1, &z);
  out[n++] = hlo_chlo(h, "next_after", 2, (hlo_val_t[]){y, x});
  out[n++] = hlo_chlo(h, "zeta", 2, (hlo_val_t[]){z, x});
  out[n++] = hlo_chlo(h, "polygamma", 2, (hlo_val_t[]){hlo_like(h, z, 1), z});
  return n;
}
static int chlo_f16(hlo_t *h, hlo_val_t *out) { return chlo_float(h, TTPU_F16, out); }
static int chlo_bf16(hlo_t *h, hlo_val_t *out) { return chlo_float(h, TTPU_BF16, out); }
static int chlo_f32(hlo_t *h, hlo_val_t *out) { return chlo_float(h, TTPU_F32, out); }
static int chlo_f64(hlo_t *h, hlo_val_t *out) { return chlo_float(h, TTPU_F64, out); }

static int chlo_c64(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_C64, DIMS(5));
  static const char *const ops[] = {"asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "square"};
  for (int i = 0; i < COUNT(ops); i++) out[i] = hlo_chlo(h, ops[i], 1, &x);
  return COUNT(ops);
}

/* --- casts and constants --- */

static int convert_from(hlo_t *h, ttpu_dtype_e from, hlo_val_t *out) {
  const hlo_val_t x = param(h, from, DIMS(9));
  int n = 0;
  for (int to = 1; to < TTPU_DTYPE_COUNT; to++) out[n++] = hlo_convert(h, x, (ttpu_dtype_e)to);
  return n;
}
#define DTYPE(name, bytes, kind, stablehlo, pjrt, torch, text) \
  static int convert_##name(hlo_t *h, hlo_val_t *out) { return convert_from(h, TTPU_##name, out); }
#include "graph/dtype.def"
#undef DTYPE

static int constants_double(hlo_t *h, hlo_val_t *out) {
  static const double values[] = {0, -0.0, 1, -2.5, 0.1, 65519, 65520, 448, 470, 1e-8, 3e38, 1e300, INFINITY, -INFINITY, NAN};
  int n = 0;
  for (int d = TTPU_F8E5M2; d < TTPU_C64; d++) {
    for (int i = 0; i < COUNT(values); i++) out[n++] = hlo_const(h, (ttpu_dtype_e)d, values[i]);
  }
  return n;
}

static int constants_int(hlo_t *h, hlo_val_t *out) {
  static const int64_t values[] = {0, 1, -1, 200, INT64_MAX};
  int n = 0;
  for (int d = 1; d < TTPU_DTYPE_COUNT; d++)
    for (int i = 0; i < COUNT(values); i++) out[n++] = hlo_const_int(h, (ttpu_dtype_e)d, values[i]);
  return n;
}

static int constants_other(hlo_t *h, hlo_val_t *out) {
  int n = 0;
  out[n++] = hlo_const_complex(h, TTPU_C64, 0.1, INFINITY);
  out[n++] = hlo_const_complex(h, TTPU_C128, -0.0, NAN);
  out[n++] = hlo_full(h, TTPU_F32, DIMS(2, 3), 0.1);
  out[n++] = hlo_full(h, TTPU_BOOL, DIMS(0, 3), 1);
  out[n++] = hlo_const(h, TTPU_U64, 0x1p63);
  out[n++] = hlo_const(h, TTPU_U8, -1);
  out[n++] = hlo_const(h, TTPU_I64, 1e300);
  return n;
}

static int constants_list(hlo_t *h, hlo_val_t *out) {
  int64_t ints[100];
  double doubles[100];
  for (int i = 0; i < 100; i++) {
    ints[i] = i * i - 50;
    doubles[i] = i * 0.37 - 5;
  }
  int n = 0;
  for (int d = 1; d < TTPU_DTYPE_COUNT; d++) out[n++] = hlo_const_ints(h, (ttpu_dtype_e)d, 5, ints);
  for (int d = TTPU_U8; d < TTPU_F8E5M2; d++) out[n++] = hlo_const_ints(h, (ttpu_dtype_e)d, 100, ints);
  for (int d = TTPU_F8E5M2; d < TTPU_DTYPE_COUNT; d++) out[n++] = hlo_const_doubles(h, (ttpu_dtype_e)d, 100, doubles);
  out[n++] = hlo_const_ints(h, TTPU_I32, 0, NULL);
  out[n++] = hlo_const_doubles(h, TTPU_F32, 3, (double[]){7, 7, 7});
  return n;
}

static int extremes(hlo_t *h, hlo_val_t *out) {
  int n = 0;
  for (int d = 1; d < TTPU_C64; d++) {
    out[n++] = hlo_lowest(h, (ttpu_dtype_e)d);
    out[n++] = hlo_highest(h, (ttpu_dtype_e)d);
  }
  return n;
}

static int iota(hlo_t *h, hlo_val_t *out) {
  int n = 0;
  for (int d = 1; d < TTPU_DTYPE_COUNT; d++) out[n++] = hlo_iota(h, (ttpu_dtype_e)d, DIMS(2, 3), -1);
  out[n++] = hlo_iota_like(h, TTPU_I32, out[0], 0);
  return n;
}

static int bitcast(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t f = param(h, TTPU_F32, DIMS(3, 2)), i = param(h, TTPU_I64, DIMS(3));
  const hlo_val_t c = param(h, TTPU_C64, DIMS(3)), u = param(h, TTPU_U8, DIMS(3, 8)), b = param(h, TTPU_BOOL, DIMS(3, 4));
  int n = 0;
  out[n++] = hlo_bitcast(h, f, TTPU_I32);
  out[n++] = hlo_bitcast(h, f, TTPU_F64);
  out[n++] = hlo_bitcast(h, f, TTPU_C64);
  out[n++] = hlo_bitcast(h, i, TTPU_U8);
  out[n++] = hlo_bitcast(h, i, TTPU_C64);
  out[n++] = hlo_bitcast(h, c, TTPU_I64);
  out[n++] = hlo_bitcast(h, c, TTPU_U8);
  out[n++] = hlo_bitcast(h, c, TTPU_F32);
  out[n++] = hlo_bitcast(h, u, TTPU_F64);
  out[n++] = hlo_bitcast(h, u, TTPU_C64);
  out[n++] = hlo_bitcast(h, b, TTPU_U8);
  out[n++] = hlo_bitcast(h, b, TTPU_I32);
  return n;
}

/* --- shapes --- */

static int shapes(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(2, 3, 4)), row = param(h, TTPU_F32, DIMS(3));
  int n = 0;
  out[n++] = hlo_reshape(h, x, DIMS(4, 6));
  out[n++] = hlo_flatten(h, x);
  out[n++] = hlo_squeeze(h, hlo_unsqueeze(h, row, 0), 0);
  out[n++] = hlo_unsqueeze(h, x, -1);
  out[n++] = hlo_transpose(h, x, INTS(2, 0, 1));
  out[n++] = hlo_swap(h, x, -1, 0);
  out[n++] = hlo_expand(h, row, DIMS(2, 4, 3));
  out[n++] = hlo_broadcast_in(h, row, DIMS(3, 2), INTS(0));
  out[n++] = hlo_spread(h, row, x, 2, INTS(0, -1));
  out[n++] = hlo_slice(h, x, ARRAY(0, 1, 0), ARRAY(2, 3, 4), ARRAY(1, 1, 2));
  out[n++] = hlo_slice_dim(h, x, -1, 1, 4, 2);
  out[n++] = hlo_concat(h, 2, (hlo_val_t[]){x, x}, -2);
  out[n++] = hlo_pad(h, row, hlo_like(h, row, 9), ARRAY(1), ARRAY(-1), ARRAY(2));
  out[n++] = hlo_pad_dim(h, x, -1, 1, 0, 2);
  out[n++] = hlo_reverse(h, x, 2, INTS(0, -1));
  out[n++] = hlo_expand_like(h, hlo_like(h, x, 2), x);
  return n;
}

static int dynamic_slices(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(4, 5)), i = param(h, TTPU_I32, 0, NULL), j = param(h, TTPU_I64, 0, NULL);
  const hlo_val_t part = hlo_dynamic_slice(h, x, (hlo_val_t[]){i, j}, ARRAY(2, 2));
  out[0] = part;
  out[1] = hlo_dynamic_update_slice(h, x, hlo_neg(h, part), (hlo_val_t[]){i, hlo_const_int(h, TTPU_I32, 0)});
  return 2;
}

static int empty(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(2, 0)), s = param(h, TTPU_F32, 0, NULL);
  const hlo_val_t at = param(h, TTPU_I64, DIMS(0));
  int n = 0;
  out[n++] = hlo_add(h, x, s);
  out[n++] = hlo_reduce_dim(h, "add", x, 1);
  out[n++] = hlo_reduce_all(h, "maximum", x);
  out[n++] = hlo_concat(h, 2, (hlo_val_t[]){x, hlo_full(h, TTPU_F32, DIMS(2, 1), 3)}, 1);
  out[n++] = hlo_swap(h, x, 0, 1);
  out[n++] = hlo_pad_dim(h, x, 5, 1, 1, 1);
  out[n++] = hlo_index_select(h, x, at, 1);
  out[n++] = hlo_matmul(h, x, hlo_swap(h, x, 0, 1));
  out[n++] = hlo_convert(h, hlo_flatten(h, x), TTPU_BOOL);
  return n;
}

static int scalars(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, 0, NULL);
  int n = 0;
  out[n++] = hlo_add(h, x, hlo_like(h, x, 1));
  out[n++] = hlo_reduce_all(h, "add", x);
  out[n++] = hlo_expand(h, x, DIMS(2, 2));
  out[n++] = hlo_flatten(h, x);
  out[n++] = hlo_convert(h, x, TTPU_I32);
  out[n++] = hlo_transpose(h, x, NULL);
  out[n++] = hlo_dynamic_slice(h, x, NULL, NULL);
  return n;
}

/* --- contraction --- */

static int dots(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t a = param(h, TTPU_F32, DIMS(2, 3, 4)), b = param(h, TTPU_F32, DIMS(2, 4, 5));
  const hlo_val_t half = hlo_convert(h, a, TTPU_BF16), integer = hlo_convert(h, a, TTPU_I8);
  int n = 0;
  out[n++] = hlo_matmul(h, a, b);
  hlo_set_precision(h, 2);
  out[n++] = hlo_dot_general(h, a, b, 0, NULL, NULL, 2, INTS(0, 2), INTS(0, 1), TTPU_F32);
  out[n++] = hlo_dot_general(h, a, b, 0, NULL, NULL, 0, NULL, NULL, TTPU_F32);
  out[n++] = hlo_dot_general(h, half, half, 1, INTS(0), INTS(0), 1, INTS(2), INTS(2), TTPU_F32);
  out[n++] = hlo_dot_general(h, integer, integer, 1, INTS(0), INTS(0), 1, INTS(2), INTS(2), TTPU_I32);
  return n;
}

static int convolutions(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(2, 4, 7, 6)), w = param(h, TTPU_F32, DIMS(6, 2, 3, 2));
  const hlo_val_t line = param(h, TTPU_F32, DIMS(2, 3, 8)), kernel = param(h, TTPU_F32, DIMS(4, 3, 3));
  const hlo_conv_t grouped = {.spatial = 2, .stride = ARRAY(2, 1), .pad_low = ARRAY(1, 0), .pad_high = ARRAY(1, 0),
                              .rhs_dilation = ARRAY(1, 2), .feature_groups = 2};
  out[0] = hlo_convolution(h, x, w, &grouped);
  const hlo_conv_t plain = {.spatial = 1};
  out[1] = hlo_convolution(h, line, kernel, &plain);
  const hlo_conv_t flipped = {.spatial = 1, .dimension_numbers = "[b, f, 0]x[o, i, 0]->[f, b, 0]",
                              .result_dims = ARRAY(4, 2, 6), .reverse_kernel = true};
  out[2] = hlo_convolution(h, line, kernel, &flipped);
  return 3;
}

/* --- regions --- */

static int reduce(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(2, 3, 4)), i = hlo_convert(h, x, TTPU_I32), b = hlo_gt(h, x, hlo_like(h, x, 0));
  const hlo_val_t nan = hlo_log(h, x);
  static const char *const ops[] = {"add", "multiply", "maximum", "minimum"};
  int n = 0;
  for (int k = 0; k < 4; k++) {
    out[n++] = hlo_reduce(h, ops[k], x, 2, INTS(-1, 0));
    out[n++] = hlo_reduce_dim(h, ops[k], i, 1);
    out[n++] = hlo_reduce_all(h, ops[k], b);
    out[n++] = hlo_reduce_dim(h, ops[k], nan, -1);
  }
  out[n++] = hlo_reduce_dim(h, "and", i, 0);
  out[n++] = hlo_reduce_dim(h, "or", i, 0);
  out[n++] = hlo_reduce_dim(h, "xor", i, 0);
  out[n++] = hlo_reduce_dim(h, "add", hlo_convert(h, x, TTPU_C64), 0);
  return n;
}

/* args: best, where, x, i; the body needs a constant that exists outside too. */
static void argmax_body(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t zero = hlo_const(h, TTPU_F32, 0);
  const hlo_val_t wins = hlo_gt(h, hlo_add(h, args[2], zero), args[0]);
  results[0] = hlo_select(h, wins, args[2], args[0]);
  results[1] = hlo_select(h, wins, args[3], args[1]);
}

static int reduce_many(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(3, 5));
  const hlo_val_t zero = hlo_const(h, TTPU_F32, 0), shifted = hlo_add(h, x, zero);
  const hlo_val_t xs[] = {shifted, hlo_iota_like(h, TTPU_I64, x, 1)};
  const hlo_val_t inits[] = {hlo_lowest(h, TTPU_F32), hlo_const_int(h, TTPU_I64, 0)};
  hlo_reduce_n(h, 2, xs, inits, 1, INTS(1), argmax_body, NULL, out);
  return 2;
}

static int windows(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(2, 7));
  out[0] = hlo_reduce_window(h, "maximum", x, hlo_lowest(h, TTPU_F32), ARRAY(1, 3), ARRAY(1, 2), NULL, NULL, ARRAY(0, 1),
                             ARRAY(0, 1));
  out[1] = hlo_reduce_window(h, "add", x, hlo_like(h, x, 0), ARRAY(1, 2), NULL, ARRAY(1, 2), ARRAY(1, 3), NULL, NULL);
  const hlo_val_t xs[] = {x, hlo_iota_like(h, TTPU_I64, x, 1)};
  const hlo_val_t inits[] = {hlo_lowest(h, TTPU_F32), hlo_const_int(h, TTPU_I64, 0)};
  hlo_reduce_window_n(h, 2, xs, inits, ARRAY(1, 3), NULL, NULL, NULL, NULL, NULL, argmax_body, NULL, out + 2);
  return 4;
}

static void by_key(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  results[0] = hlo_cmp_total(h, ctx, args[0], args[1]);
}

static int sorts(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(3, 6));
  const hlo_val_t keys = hlo_log(h, x); /* with NaN */
  const hlo_val_t xs[] = {keys, hlo_iota_like(h, TTPU_I64, x, 1)};
  hlo_sort(h, 2, xs, -1, true, by_key, (void *)"LT", out);
  hlo_sort(h, 1, xs, 0, false, by_key, (void *)"GT", out + 2);
  hlo_top_k(h, x, 2, &out[3], &out[4]);
  return 5;
}

/* Halves x until the sum of its squares, taken by a reduction in the loop, is under a bound captured from outside. */
typedef struct {
  hlo_val_t bound;
} halving_t;

static void halving_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const halving_t *halving = ctx;
  const hlo_val_t sum = hlo_reduce_all(h, "add", hlo_mul(h, args[0], args[0]));
  results[0] = hlo_gt(h, sum, halving->bound);
}

static void halving_body(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_mul(h, args[0], hlo_like(h, args[0], 0.5));
  results[1] = hlo_add(h, args[1], hlo_like(h, args[1], 1));
}

static void add_index(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const halving_t *outer = ctx;
  results[0] = hlo_add(h, hlo_mul(h, args[1], outer->bound), hlo_convert(h, args[0], TTPU_F32));
}

static void add_rows(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  hlo_for(h, 3, 1, args + 1, add_index, ctx, results);
}

static int loops(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(4)), bound = param(h, TTPU_F32, 0, NULL);
  halving_t halving = {bound};
  const hlo_val_t init[] = {x, hlo_const_int(h, TTPU_I32, 0)};
  hlo_while(h, 2, init, halving_goes_on, halving_body, &halving, out);
  hlo_for(h, 2, 1, &x, add_rows, &halving, out + 2);
  hlo_for(h, 0, 1, &x, add_rows, &halving, out + 3);
  return 4;
}

static void then_body(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)args;
  results[0] = hlo_neg(h, *(hlo_val_t *)ctx);
  results[1] = hlo_const(h, TTPU_F32, 1);
}

static void else_body(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)args;
  results[0] = *(hlo_val_t *)ctx;
  results[1] = hlo_reduce_all(h, "add", *(hlo_val_t *)ctx);
}

static int branches(hlo_t *h, hlo_val_t *out) {
  hlo_val_t x = param(h, TTPU_F32, DIMS(4));
  const hlo_val_t yes = param(h, TTPU_BOOL, 0, NULL);
  hlo_if(h, yes, 2, then_body, else_body, &x, out);
  hlo_if(h, hlo_not(h, yes), 2, then_body, else_body, &x, out + 2);
  return 4;
}

/* --- indexing --- */

static int gathers(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(3, 4, 5)), at = param(h, TTPU_I64, DIMS(2, 4, 6));
  const hlo_val_t rows = param(h, TTPU_I64, DIMS(7)), pairs = param(h, TTPU_I32, DIMS(6, 2));
  out[0] = hlo_take_along(h, x, at, 2);
  out[1] = hlo_index_select(h, x, rows, 1);
  const hlo_gather_t g = {.offset_count = 1, .offset_dims = INTS(1), .collapsed_count = 2, .collapsed_dims = INTS(0, 1),
                          .start_map_count = 2, .start_map = INTS(0, 1), .slice_sizes = ARRAY(1, 1, 5)};
  out[2] = hlo_gather(h, x, pairs, &g);
  return 3;
}

static int scatters(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(4, 3)), rows = param(h, TTPU_I64, DIMS(2)), y = param(h, TTPU_F32, DIMS(2, 3));
  const hlo_val_t at = hlo_unsqueeze(h, rows, -1);
  const hlo_scatter_t s = {.window_count = 1, .window_dims = INTS(1), .inserted_count = 1, .inserted_dims = INTS(0),
                           .map_count = 1, .scatter_map = INTS(0)};
  static const char *const ops[] = {"", "add", "multiply", "maximum", "minimum"};
  for (int i = 0; i < 5; i++) out[i] = hlo_scatter(h, ops[i], x, at, y, &s);
  /* one row a batch */
  const hlo_val_t column = hlo_unsqueeze(h, hlo_unsqueeze(h, hlo_iota(h, TTPU_I64, DIMS(4), 0), -1), -1);
  const hlo_val_t clamped = hlo_min(h, column, hlo_const_int(h, TTPU_I64, 2));
  const hlo_scatter_t batched = {.inserted_count = 1, .inserted_dims = INTS(1), .map_count = 1, .scatter_map = INTS(1),
                                 .batching_count = 1, .operand_batching = INTS(0), .indices_batching = INTS(0),
                                 .unique = true, .sorted = true};
  out[5] = hlo_scatter(h, "add", x, clamped, hlo_full(h, TTPU_F32, DIMS(4, 1), 10), &batched);
  return 6;
}

/* --- other --- */

static int random_bits(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t state = param(h, TTPU_U64, DIMS(2));
  out[0] = hlo_random_bits(h, state, TTPU_U32, DIMS(1000));
  out[1] = hlo_random_bits(h, state, TTPU_U64, DIMS(10, 50));
  return 2;
}

static int ffts(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(3, 8)), z = param(h, TTPU_C128, DIMS(4, 6));
  out[0] = hlo_fft(h, x, "RFFT", 1, ARRAY(8));
  out[1] = hlo_fft(h, out[0], "IRFFT", 1, ARRAY(8));
  out[2] = hlo_fft(h, z, "FFT", 2, ARRAY(4, 6));
  out[3] = hlo_fft(h, z, "IFFT", 1, ARRAY(6));
  return 4;
}

static int linalg(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F64, DIMS(2, 3, 3)), b = param(h, TTPU_F64, DIMS(2, 3, 2));
  const hlo_val_t eye = hlo_eq(h, hlo_iota(h, TTPU_I32, DIMS(3, 3), 0), hlo_iota(h, TTPU_I32, DIMS(3, 3), 1));
  const hlo_val_t gram = hlo_matmul(h, x, hlo_swap(h, x, -1, -2));
  const hlo_val_t positive = hlo_add(h, gram, hlo_convert(h, eye, TTPU_F64));
  const hlo_val_t lower = hlo_cholesky(h, positive, true);
  out[0] = hlo_matmul(h, lower, b);
  out[1] = hlo_triangular_solve(h, lower, out[0], true, true, false, NULL);
  out[2] = hlo_triangular_solve(h, lower, b, true, true, false, "TRANSPOSE");
  out[3] = lower;
  return 4;
}

static int raw(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = param(h, TTPU_F32, DIMS(3));
  out[0] = hlo_raw(h, "stablehlo.optimization_barrier", 1, &x, NULL, TTPU_F32, DIMS(3));
  out[1] = hlo_raw(h, "stablehlo.reduce_precision", 1, &x, "{exponent_bits = 5 : i32, mantissa_bits = 2 : i32}", TTPU_F32,
                   DIMS(3));
  return 2;
}

static int donated(hlo_t *h, hlo_val_t *out) {
  const hlo_val_t x = hlo_parameter(h, TTPU_F32, DIMS(3), "jax.buffer_donor = true");
  out[0] = hlo_add(h, x, hlo_like(h, x, 1));
  return 1;
}

typedef struct {
  const char *name;
  int (*emit)(hlo_t *h, hlo_val_t *out);
} hlo_case_t;

#define CASE(name) {#name, name}
static const hlo_case_t hlo_cases[] = {
    CASE(unary_f16), CASE(unary_bf16), CASE(unary_f32), CASE(unary_f64), CASE(unary_c64), CASE(unary_int),
    CASE(binary_f16), CASE(binary_bf16), CASE(binary_f32), CASE(binary_f64), CASE(binary_i64), CASE(binary_i8),
    CASE(binary_u8), CASE(binary_bool), CASE(binary_c64), CASE(nan_extrema), CASE(shifts), CASE(compare_f32), CASE(compare_bf16),
    CASE(compare_i64), CASE(compare_u8), CASE(compare_bool), CASE(compare_c64), CASE(compare_total), CASE(selects),
    CASE(chlo_f16), CASE(chlo_bf16), CASE(chlo_f32), CASE(chlo_f64), CASE(chlo_c64),
#define DTYPE(name, bytes, kind, stablehlo, pjrt, torch, text) {"convert_" text, convert_##name},
#include "graph/dtype.def"
#undef DTYPE
    CASE(constants_double), CASE(constants_int), CASE(constants_other), CASE(constants_list), CASE(extremes), CASE(iota),
    CASE(bitcast), CASE(shapes), CASE(dynamic_slices), CASE(empty), CASE(scalars), CASE(dots), CASE(convolutions),
    CASE(reduce), CASE(reduce_many), CASE(windows), CASE(sorts), CASE(loops), CASE(branches), CASE(gathers),
    CASE(scatters), CASE(random_bits), CASE(ffts), CASE(linalg), CASE(raw), CASE(donated),
};

#endif /* TTPU_HLO_HLO_CASES_H_ */
