/* hlo_elementwise.c: elementwise operations, comparisons, casts and bitcasts. */
#include <stdio.h>

#include "hlo/hlo_text.h"

/* --- unary and binary ----------------------------------------------------------------------------------- */

/* Kinds of element that StableHLO takes for each op: said here with PyTorch's words, instead of by the plugin's parser. */
static const struct {
  const char *op, *kinds;
} legal[] = {
    {"abs", "if"},        {"add", "buifc"},      {"and", "bui"},        {"atan2", "fc"},
    {"cbrt", "fc"},       {"ceil", "f"},         {"cosine", "fc"},      {"count_leading_zeros", "ui"},
    {"divide", "uifc"},   {"exponential", "fc"}, {"exponential_minus_one", "fc"},
    {"floor", "f"},       {"log", "fc"},         {"log_plus_one", "fc"}, {"logistic", "fc"},
    {"maximum", "buif"},  {"minimum", "buif"},   {"multiply", "buifc"}, {"negate", "uifc"},
    {"not", "bui"},       {"or", "bui"},         {"popcnt", "ui"},      {"power", "uifc"},
    {"remainder", "uif"}, {"round_nearest_afz", "f"}, {"round_nearest_even", "f"}, {"rsqrt", "fc"},
    {"shift_left", "ui"}, {"shift_right_arithmetic", "ui"}, {"shift_right_logical", "ui"},
    {"sign", "ifc"},      {"sine", "fc"},        {"sqrt", "fc"},        {"subtract", "uifc"},
    {"tan", "fc"},        {"tanh", "fc"},        {"xor", "bui"},
};

static bool check_kind(hlo_t *h, const char *op, hlo_val_t x) {
  if (h->failed) return false;
  const char kind = ttpu_dtype_kind(hlo_dtype(h, x));
  if (!kind) {
    hlo_fail(h, "%s: an operand is missing", op);
    return false;
  }
  for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
    if (!strcmp(legal[i].op, op)) {
      if (strchr(legal[i].kinds, kind)) return true;
      hlo_fail(h, "%s is not defined for %s", op, hlo_describe(h, x).text);
      return false;
    }
  return true;
}

hlo_val_t hlo_un(hlo_t *h, const char *op, hlo_val_t x) {
  return check_kind(h, op, x) ? hlo_line_same(h, op, 1, &x) : 0;
}

/* Makes the dims of |xs| equal, in place. */
static bool broadcast_all(hlo_t *h, const char *op, int count, hlo_val_t *xs) {
  if (h->failed) return false;
  bool is_equal = true;
  const hlo_value_t *first = hlo_value(h, xs[0]);
  for (int i = 1; i < count; i++) {
    const hlo_value_t *other = hlo_value(h, xs[i]);
    is_equal &= hlo_same_dims(first->rank, first->dims, other->rank, other->dims);
  }
  if (is_equal) return true;
  int rank;
  int64_t dims[TTPU_MAX_RANK];
  if (!hlo_broadcast_dims(h, op, count, xs, &rank, dims)) return false;
  for (int i = 0; i < count; i++) xs[i] = hlo_expand(h, xs[i], rank, dims);
  return !h->failed;
}

static bool check_pair(hlo_t *h, const char *op, hlo_val_t a, hlo_val_t b) {
  if (!check_kind(h, op, a) || !check_kind(h, op, b)) return false;
  if (hlo_dtype(h, a) == hlo_dtype(h, b)) return true;
  hlo_fail(h, "%s of different dtypes: %s and %s", op, hlo_describe(h, a).text, hlo_describe(h, b).text);
  return false;
}

static bool is_number(const hlo_t *h, hlo_val_t v) {
  double value;
  memcpy(&value, &hlo_value(h, v)->bits.lo, sizeof value);
  return hlo_value(h, v)->is_splat && value == value;
}

/* StableHLO's maximum keeps NaN, but the XLA CPU compiler drops one on the right in elementwise code and any in vector
 * reductions (xla_cpu_enable_fast_min_max=false mends only the former). So NaN is spelled out: free where memory is the
 * bound, 1.7 times the time of a reduction in cache. A number on the right keeps the short form, which was measured right. */
static hlo_val_t extremum(hlo_t *h, bool is_max, hlo_val_t a, hlo_val_t b) {
  if (is_number(h, a)) {
    const hlo_val_t swapped = a;
    a = b;
    b = swapped;
  }
  const hlo_val_t xs[] = {a, b};
  if (is_number(h, b)) return hlo_line_same(h, is_max ? "maximum" : "minimum", 2, xs);
  const hlo_val_t wins = hlo_cmp(h, is_max ? "GT" : "LT", a, b);
  const hlo_val_t keeps = hlo_or(h, wins, hlo_is_nan(h, a));
  return hlo_select(h, keeps, a, b);
}

hlo_val_t hlo_bin(hlo_t *h, const char *op, hlo_val_t a, hlo_val_t b) {
  if (!check_pair(h, op, a, b)) return 0;
  hlo_val_t xs[] = {a, b};
  if (!broadcast_all(h, op, 2, xs)) return 0;
  if (ttpu_dtype_is_float(hlo_dtype(h, a))) {
    const bool is_max = !strcmp(op, "maximum");
    if (is_max || !strcmp(op, "minimum")) return extremum(h, is_max, xs[0], xs[1]);
  }
  if (hlo_dtype(h, a) == TTPU_BOOL) {
    if (!strcmp(op, "maximum") || !strcmp(op, "add")) op = "or";
    if (!strcmp(op, "minimum") || !strcmp(op, "multiply")) op = "and";
  }
  return hlo_line_same(h, op, 2, xs);
}

hlo_val_t hlo_chlo(hlo_t *h, const char *op, int count, const hlo_val_t *operands) {
  hlo_val_t xs[8];
  if (count < 1 || count > 8) return hlo_fail(h, "%s of %d operands", op, count);
  for (int i = 0; i < count; i++) {
    if (!check_pair(h, op, operands[0], operands[i])) return 0;
    xs[i] = operands[i];
  }
  if (!broadcast_all(h, op, count, xs)) return 0;
  const hlo_value_t *like = hlo_value(h, xs[0]);
  const ttpu_dtype_e dtype = strncmp(op, "is_", 3) ? like->dtype : TTPU_BOOL;
  return hlo_line(h, "chlo", op, count, xs, dtype, like->rank, like->dims);
}

hlo_val_t hlo_abs(hlo_t *h, hlo_val_t x) {
  const ttpu_dtype_e dtype = hlo_dtype(h, x);
  switch (ttpu_dtype_kind(dtype)) {
    case 'b':
    case 'u': return x;
    case 'c': return hlo_line(h, "stablehlo", "abs", 1, &x, ttpu_dtype_real(dtype), hlo_rank(h, x), hlo_dims(h, x));
    default: return hlo_un(h, "abs", x);
  }
}

/* --- comparison and selection --------------------------------------------------------------------------- */

hlo_val_t hlo_cmp(hlo_t *h, const char *direction, hlo_val_t a, hlo_val_t b) {
  if (!check_pair(h, direction, a, b)) return 0;
  const char kind = ttpu_dtype_kind(hlo_dtype(h, a));
  const char *type = kind == 'i' ? "SIGNED" : kind == 'f' || kind == 'c' ? "FLOAT" : "UNSIGNED";
  if (kind == 'c' && strcmp(direction, "EQ") && strcmp(direction, "NE"))
    return hlo_fail(h, "complex values have no order: %s of %s", direction, hlo_describe(h, a).text);
  hlo_val_t xs[] = {a, b};
  if (!broadcast_all(h, direction, 2, xs)) return 0;
  const hlo_val_t left = hlo_resolve(h, direction, xs[0]), right = hlo_resolve(h, direction, xs[1]);
  const hlo_val_t v = hlo_new_values(h, 1);
  if (v) hlo_set_type(h, v, TTPU_BOOL, hlo_rank(h, left), hlo_dims(h, left));
  if (h->failed) return 0;
  ttpu_str_t *s = &h->body;
  hlo_put_value(h, s, v);
  hlo_puts(s, " = stablehlo.compare ");
  hlo_puts(s, direction);
  hlo_put(s, ", ", 2);
  hlo_put_value(h, s, left);
  hlo_put(s, ", ", 2);
  hlo_put_value(h, s, right);
  hlo_put(s, ", ", 2);
  hlo_puts(s, type);
  hlo_puts(s, " : (");
  hlo_put_type(h, s, left);
  hlo_put(s, ", ", 2);
  hlo_put_type(h, s, right);
  hlo_puts(s, ") -> ");
  hlo_put_type(h, s, v);
  hlo_put(s, "\n", 1);
  return v;
}

/* StableHLO's own total order tells -0 from 0 and puts negative NaN first: not PyTorch's order of sorting. */
hlo_val_t hlo_cmp_total(hlo_t *h, const char *direction, hlo_val_t a, hlo_val_t b) {
  if (!ttpu_dtype_is_float(hlo_dtype(h, a))) return hlo_cmp(h, direction, a, b);
  if (!strcmp(direction, "GT")) return hlo_cmp_total(h, "LT", b, a);
  if (!strcmp(direction, "GE")) return hlo_not(h, hlo_cmp_total(h, "LT", a, b));
  if (!strcmp(direction, "LE")) return hlo_not(h, hlo_cmp_total(h, "LT", b, a));
  if (!strcmp(direction, "NE")) return hlo_not(h, hlo_cmp_total(h, "EQ", a, b));
  const hlo_val_t a_nan = hlo_is_nan(h, a), b_nan = hlo_is_nan(h, b);
  const hlo_val_t plain = hlo_cmp(h, direction, a, b);
  if (!strcmp(direction, "EQ")) return hlo_or(h, plain, hlo_and(h, a_nan, b_nan));
  const hlo_val_t a_number = hlo_not(h, a_nan);
  return hlo_or(h, plain, hlo_and(h, a_number, b_nan));
}

hlo_val_t hlo_select(hlo_t *h, hlo_val_t pred, hlo_val_t on_true, hlo_val_t on_false) {
  if (!check_pair(h, "select", on_true, on_false) || !check_kind(h, "select", pred)) return 0;
  if (hlo_dtype(h, pred) != TTPU_BOOL) return hlo_fail(h, "select by %s, not bool", hlo_describe(h, pred).text);
  hlo_val_t xs[] = {on_true, on_false, pred};
  /* a scalar predicate may stay one */
  if (!broadcast_all(h, "select", hlo_rank(h, pred) ? 3 : 2, xs)) return 0;
  const hlo_val_t operands[] = {xs[2], xs[0], xs[1]};
  return hlo_line(h, "stablehlo", "select", 3, operands, hlo_dtype(h, on_true), hlo_rank(h, xs[0]), hlo_dims(h, xs[0]));
}

hlo_val_t hlo_is_finite(hlo_t *h, hlo_val_t x) {
  const hlo_value_t *value = hlo_value(h, x);
  switch (ttpu_dtype_kind(value->dtype)) {
    case 'f': return hlo_line(h, "stablehlo", "is_finite", 1, &x, TTPU_BOOL, value->rank, value->dims);
    case 'c': {
      const hlo_val_t re = hlo_is_finite(h, hlo_real(h, x)), im = hlo_is_finite(h, hlo_imag(h, x));
      return hlo_and(h, re, im);
    }
    default: return check_kind(h, "is_finite", x) ? hlo_full(h, TTPU_BOOL, value->rank, value->dims, 1) : 0;
  }
}

hlo_val_t hlo_is_nan(hlo_t *h, hlo_val_t x) {
  const char kind = ttpu_dtype_kind(hlo_dtype(h, x));
  if (kind == 'f' || kind == 'c') return hlo_ne(h, x, x);
  return check_kind(h, "is_nan", x) ? hlo_full(h, TTPU_BOOL, hlo_rank(h, x), hlo_dims(h, x), 0) : 0;
}

/* --- complex -------------------------------------------------------------------------------------------- */

hlo_val_t hlo_real(hlo_t *h, hlo_val_t x) {
  const ttpu_dtype_e dtype = hlo_dtype(h, x);
  if (!ttpu_dtype_is_complex(dtype)) return x;
  return hlo_line(h, "stablehlo", "real", 1, &x, ttpu_dtype_real(dtype), hlo_rank(h, x), hlo_dims(h, x));
}

hlo_val_t hlo_imag(hlo_t *h, hlo_val_t x) {
  const ttpu_dtype_e dtype = hlo_dtype(h, x);
  if (!ttpu_dtype_is_complex(dtype)) return hlo_full_like(h, x, 0);
  return hlo_line(h, "stablehlo", "imag", 1, &x, ttpu_dtype_real(dtype), hlo_rank(h, x), hlo_dims(h, x));
}

hlo_val_t hlo_complex(hlo_t *h, hlo_val_t re, hlo_val_t im) {
  if (!check_pair(h, "complex", re, im)) return 0;
  const ttpu_dtype_e dtype = hlo_dtype(h, re);
  if (dtype != TTPU_F32 && dtype != TTPU_F64) return hlo_fail(h, "complex of %s", hlo_describe(h, re).text);
  hlo_val_t xs[] = {re, im};
  if (!broadcast_all(h, "complex", 2, xs)) return 0;
  return hlo_line(h, "stablehlo", "complex", 2, xs, ttpu_dtype_complex(dtype), hlo_rank(h, xs[0]), hlo_dims(h, xs[0]));
}

/* --- casts ---------------------------------------------------------------------------------------------- */

static hlo_val_t convert_line(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  if (hlo_dtype(h, x) == dtype) return x;
  return hlo_line(h, "stablehlo", "convert", 1, &x, dtype, hlo_rank(h, x), hlo_dims(h, x));
}

/* Integers narrower than what the processor converts to are cut from it, so out of range wraps as on CPU PyTorch (XLA's
 * own conversion saturates). */
static hlo_val_t from_float(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  const int64_t bytes = ttpu_dtype_bytes(dtype);
  switch (ttpu_dtype_kind(dtype)) {
    case 'i': return convert_line(h, bytes < 4 ? convert_line(h, x, TTPU_I32) : x, dtype);
    case 'u': {
      const hlo_val_t wrapped = convert_line(h, convert_line(h, x, TTPU_I64), dtype);
      if (bytes < 8) return wrapped;
      const hlo_val_t is_signed = hlo_lt(h, x, hlo_like(h, x, 0x1p63));
      const hlo_val_t direct = convert_line(h, x, dtype);
      return hlo_select(h, is_signed, wrapped, direct);
    }
    default: return convert_line(h, x, dtype);
  }
}

hlo_val_t hlo_convert(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  const ttpu_dtype_e from = hlo_dtype(h, x);
  if (from == dtype || !check_kind(h, "convert", x)) return h->failed ? 0 : x;
  if (dtype <= TTPU_DTYPE_NONE || dtype >= TTPU_DTYPE_COUNT) return hlo_fail(h, "convert to no dtype");
  const char to_kind = ttpu_dtype_kind(dtype), from_kind = ttpu_dtype_kind(from);
  const int64_t to_bytes = ttpu_dtype_bytes(dtype), from_bytes = ttpu_dtype_bytes(from);
  if (from_kind == 'c' && to_kind == 'c') return convert_line(h, x, dtype);
  if (to_kind == 'b') {
    if (from_kind == 'f' && from_bytes == 1) x = convert_line(h, x, TTPU_F32);
    return hlo_ne(h, x, hlo_like(h, x, 0));
  }
  if (from_kind == 'c') return hlo_convert(h, hlo_real(h, x), dtype);
  if (to_kind == 'c') {
    const hlo_val_t re = hlo_convert(h, x, ttpu_dtype_real(dtype));
    return hlo_complex(h, re, hlo_like(h, re, 0));
  }
  if (to_kind == 'f' && to_bytes < 4 && (from_bytes > 2 || to_bytes == 1)) x = convert_line(h, x, TTPU_F32);
  if (dtype == TTPU_F8E4M3) { /* it has no infinity: PyTorch saturates where XLA makes NaN */
    x = hlo_min(h, x, hlo_like(h, x, 448));
    x = hlo_max(h, x, hlo_like(h, x, -448));
  }
  if (from_kind == 'f') return from_float(h, x, dtype);
  return convert_line(h, x, dtype);
}

/* --- bitcasts ------------------------------------------------------------------------------------------- */

/* StableHLO's own, between types that it has bits for. */
static hlo_val_t bitcast_line(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  const hlo_value_t *value = hlo_value(h, x);
  const int64_t from = ttpu_dtype_bytes(value->dtype), to = ttpu_dtype_bytes(dtype);
  int64_t dims[TTPU_MAX_RANK + 1];
  int rank = value->rank;
  for (int i = 0; i < rank; i++) dims[i] = value->dims[i];
  if (value->dtype == dtype) return x;
  if (to < from) {
    dims[rank++] = from / to;
  } else if (to > from) {
    if (!rank || dims[rank - 1] != to / from)
      return hlo_fail(h, "bitcast of %s to %s: the last dimension must be %lld", hlo_describe(h, x).text,
                      ttpu_dtype_text(dtype), (long long)(to / from));
    rank--;
  }
  return hlo_line(h, "stablehlo", "bitcast_convert", 1, &x, dtype, rank, dims);
}

/* Last dimension of size 2 to complex, and back. */
static hlo_val_t pairs_to_complex(hlo_t *h, hlo_val_t x) {
  const hlo_val_t re = hlo_slice_dim(h, x, -1, 0, 1, 1), im = hlo_slice_dim(h, x, -1, 1, 2, 1);
  const hlo_val_t z = hlo_complex(h, re, im);
  return hlo_squeeze(h, z, -1);
}

static hlo_val_t complex_to_pairs(hlo_t *h, hlo_val_t x) {
  const int rank = hlo_rank(h, x);
  const hlo_val_t re = hlo_unsqueeze(h, hlo_real(h, x), rank), im = hlo_unsqueeze(h, hlo_imag(h, x), rank);
  const hlo_val_t both[] = {re, im};
  return hlo_concat(h, 2, both, rank);
}

hlo_val_t hlo_bitcast(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  const ttpu_dtype_e from = hlo_dtype(h, x);
  if (from == dtype || !check_kind(h, "bitcast", x)) return h->failed ? 0 : x;
  const int64_t from_bytes = ttpu_dtype_bytes(from), to_bytes = ttpu_dtype_bytes(dtype);
  int64_t dims[TTPU_MAX_RANK + 1];
  int rank = hlo_rank(h, x);
  for (int i = 0; i < rank; i++) dims[i] = hlo_dim(h, x, i);
  if (from_bytes > to_bytes) {
    dims[rank++] = from_bytes / to_bytes;
  } else if (from_bytes < to_bytes) {
    if (!rank || dims[rank - 1] != to_bytes / from_bytes) return bitcast_line(h, x, dtype); /* fails with its message */
    rank--;
  }
  /* bool is a byte of 0 or 1; complex a pair of reals. The rest is reinterpreted flat, one element of the wider of the
   * two real types a row. */
  if (from == TTPU_BOOL) x = convert_line(h, x, TTPU_U8);
  if (ttpu_dtype_is_complex(from)) x = complex_to_pairs(h, x);
  const ttpu_dtype_e source = hlo_dtype(h, x), target = dtype == TTPU_BOOL ? TTPU_U8 : ttpu_dtype_real(dtype);
  const int64_t source_bytes = ttpu_dtype_bytes(source), target_bytes = ttpu_dtype_bytes(target);
  if (target_bytes > source_bytes) {
    const int64_t rows[] = {hlo_numel(h, x) * source_bytes / target_bytes, target_bytes / source_bytes};
    x = hlo_reshape(h, x, 2, rows);
  }
  x = bitcast_line(h, x, target);
  if (ttpu_dtype_is_complex(dtype)) {
    const int64_t pairs[] = {hlo_numel(h, x) / 2, 2};
    x = pairs_to_complex(h, hlo_reshape(h, x, 2, pairs));
  }
  if (dtype == TTPU_BOOL) x = hlo_ne(h, x, hlo_like(h, x, 0));
  return hlo_reshape(h, x, rank, dims);
}
