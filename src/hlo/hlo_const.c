/* hlo_const.c: constants. A value is rounded to its dtype here, as PyTorch rounds it, so that the text states what the
 * program uses; equal splats of one region are written once.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "hlo/hlo_text.h"

/* --- rounding ------------------------------------------------------------------------------------------- */

/* A float format: explicit mantissa bits, least exponent, greatest finite value, and its special patterns. One without
 * infinities saturates. */
typedef struct {
  int mantissa, exponent_min;
  double greatest;
  uint64_t infinity, nan, sign; /* infinity 0: there is none */
} format_t;

static const format_t *format_of(ttpu_dtype_e dtype) {
  static const format_t f8e5m2 = {2, -14, 57344, 0x7c, 0x7e, 0x80}, f8e4m3 = {3, -6, 448, 0, 0x7f, 0x80},
                        f16 = {10, -14, 65504, 0x7c00, 0x7e00, 0x8000},
                        bf16 = {7, -126, 0x1.fep127, 0x7f80, 0x7fc0, 0x8000},
                        f32 = {23, -126, 0x1.fffffep127, 0x7f800000, 0x7fc00000, 0x80000000},
                        f64 = {52, -1022, 0x1.fffffffffffffp1023, 0x7ff0000000000000, 0x7ff8000000000000, 1ull << 63};
  switch (dtype) {
    case TTPU_F8E5M2: return &f8e5m2;
    case TTPU_F8E4M3: return &f8e4m3;
    case TTPU_F16: return &f16;
    case TTPU_BF16: return &bf16;
    case TTPU_F32:
    case TTPU_C64: return &f32;
    default: return &f64;
  }
}

static double from_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

static uint64_t to_bits(double value) {
  uint64_t bits;
  if (value != value) return 0x7ff8000000000000; /* one NaN, or text and sharing would depend on its payload */
  memcpy(&bits, &value, 8);
  return bits;
}

/* PyTorch converts a double to a narrow type by way of float; so do hlo_convert and this. */
static double round_to(ttpu_dtype_e dtype, double value) {
  if (dtype == TTPU_F64 || dtype == TTPU_C128) return value;
  value = (double)(float)value;
  const format_t *f = format_of(dtype);
  if (f->mantissa == 23 || value == 0 || value != value) return value;
  if (!isinf(value)) {
    int exponent;
    frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
    exponent = exponent - 1 < f->exponent_min ? f->exponent_min : exponent - 1;
    const int quantum = exponent - f->mantissa;
    const double rounded = ldexp(rint(ldexp(value, -quantum)), quantum);
    if (fabs(rounded) <= f->greatest) return rounded;
  }
  return copysign(f->infinity ? INFINITY : f->greatest, value);
}

/* What a C cast would do where it is defined; the ends of int64 and 0 for NaN elsewhere. */
static int64_t to_int(double value) {
  if (value != value) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  return value <= -0x1p63 ? INT64_MIN : (int64_t)value;
}

/* Integers wrap to the width of the type. */
static uint64_t wrap_int(ttpu_dtype_e dtype, uint64_t value) {
  const int unused = 64 - 8 * (int)ttpu_dtype_bytes(dtype);
  if (unused <= 0) return value;
  return ttpu_dtype_kind(dtype) == 'u' ? value << unused >> unused : (uint64_t)((int64_t)(value << unused) >> unused);
}

static hlo_bits_t bits_of(ttpu_dtype_e dtype, double value) {
  switch (ttpu_dtype_kind(dtype)) {
    case 'b': return (hlo_bits_t){value != 0, 0};
    case 'u':
      if (dtype == TTPU_U64 && value >= 0x1p63)
        return (hlo_bits_t){value >= 0x1p64 ? UINT64_MAX : (uint64_t)value, 0};
      return (hlo_bits_t){wrap_int(dtype, (uint64_t)to_int(value)), 0};
    case 'i': return (hlo_bits_t){wrap_int(dtype, (uint64_t)to_int(value)), 0};
    default: return (hlo_bits_t){to_bits(round_to(dtype, value)), 0};
  }
}

static hlo_bits_t bits_of_int(ttpu_dtype_e dtype, int64_t value) {
  switch (ttpu_dtype_kind(dtype)) {
    case 'b': return (hlo_bits_t){value != 0, 0};
    case 'u':
    case 'i': return (hlo_bits_t){wrap_int(dtype, (uint64_t)value), 0};
    default: {
      /* one rounding: the way through double would make two */
      const bool is_double = dtype == TTPU_F64 || dtype == TTPU_C128;
      return (hlo_bits_t){to_bits(is_double ? (double)value : round_to(dtype, (double)(float)value)), 0};
    }
  }
}

/* --- text ----------------------------------------------------------------------------------------------- */

/* The shortest of a few decimal lengths that reads back as the same value, always with a point. */
static void put_float(ttpu_str_t *s, ttpu_dtype_e dtype, double value) {
  if (value != value || isinf(value)) {
    const format_t *f = format_of(dtype);
    const uint64_t bits = value != value ? f->nan : value < 0 ? f->infinity | f->sign : f->infinity;
    char hex[24];
    const int n = snprintf(hex, sizeof hex, "0x%0*llX", (int)ttpu_dtype_bytes(ttpu_dtype_real(dtype)) * 2,
                           (unsigned long long)bits);
    hlo_put(s, hex, (size_t)n);
    return;
  }
  if (fabs(value) < 1e6 && value == rint(value) && !(value == 0 && signbit(value))) {
    hlo_put_int(s, (int64_t)value);
    hlo_put(s, ".0", 2);
    return;
  }
  static const int precisions[] = {6, 9, 15, 17};
  const bool is_double = dtype == TTPU_F64 || dtype == TTPU_C128;
  char text[40];
  for (int i = 0; i < 4; i++) {
    snprintf(text, sizeof text - 2, "%.*g", precisions[i], value);
    const double back = strtod(text, NULL);
    if (is_double ? back == value : (float)back == (float)value) break;
  }
  /* The decimal point may be the user's locale's; MLIR wants one in every number. */
  bool has_point = false;
  for (char *p = text; *p && *p != 'e'; p++)
    if ((*p < '0' || *p > '9') && *p != '-') {
      *p = '.';
      has_point = true;
    }
  const size_t whole = strcspn(text, "e");
  hlo_put(s, text, whole);
  if (!has_point) hlo_put(s, ".0", 2);
  hlo_puts(s, text + whole);
}

void hlo_put_element(ttpu_str_t *s, ttpu_dtype_e dtype, hlo_bits_t bits) {
  switch (ttpu_dtype_kind(dtype)) {
    case 'b': hlo_puts(s, bits.lo ? "true" : "false"); break;
    case 'u': hlo_put_unsigned(s, bits.lo); break;
    case 'i': hlo_put_int(s, (int64_t)bits.lo); break;
    case 'f': put_float(s, dtype, from_bits(bits.lo)); break;
    default:
      hlo_put(s, "(", 1);
      put_float(s, dtype, from_bits(bits.lo));
      hlo_put(s, ", ", 2);
      put_float(s, dtype, from_bits(bits.hi));
      hlo_put(s, ")", 1);
  }
}

/* --- splats --------------------------------------------------------------------------------------------- */

static int bucket_of(ttpu_dtype_e dtype, int rank, hlo_bits_t bits) {
  const uint64_t x = (bits.lo ^ bits.hi * 3 ^ (uint64_t)dtype << 8 ^ (uint64_t)rank) * 0x9e3779b97f4a7c15u;
  return (int)(x >> 58);
}

void hlo_forget_constants(hlo_t *h, int32_t count) {
  while (h->known_count > count) {
    const hlo_known_t *known = &h->known[--h->known_count];
    h->known_heads[known->bucket] = known->next;
  }
}

/* Sharing is lost, and nothing else, when memory is out here. */
static void remember(hlo_t *h, hlo_val_t v, int bucket) {
  if (h->known_count == h->known_capacity) {
    const int32_t capacity = h->known_capacity ? h->known_capacity * 2 : 64;
    hlo_known_t *known = ttpu_alloc_resize(h->known, (size_t)capacity * sizeof *known);
    if (!known) return;
    h->known = known;
    h->known_capacity = capacity;
  }
  h->known[h->known_count++] = (hlo_known_t){v, h->known_heads[bucket], bucket};
  h->known_heads[bucket] = h->known_count;
}

hlo_val_t hlo_splat(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, hlo_bits_t bits) {
  if (h->failed) return 0;
  const int bucket = bucket_of(dtype, rank, bits);
  for (int32_t i = h->known_heads[bucket]; i > h->known_floor; i = h->known[i - 1].next) {
    const hlo_val_t v = h->known[i - 1].value;
    const hlo_value_t *value = &h->values[v];
    if (value->dtype == dtype && value->bits.lo == bits.lo && value->bits.hi == bits.hi &&
        hlo_same_dims(value->rank, value->dims, rank, dims))
      return v;
  }
  const hlo_val_t v = hlo_new_values(h, 1);
  if (v) hlo_set_type(h, v, dtype, rank, dims);
  if (h->failed) return 0;
  h->values[v].is_splat = true;
  h->values[v].bits = bits;
  remember(h, v, bucket);
  return v;
}

void hlo_put_splat(hlo_t *h, hlo_val_t v) {
  h->values[v].is_written = true;
  ttpu_str_t *s = &h->body;
  hlo_put_value(h, s, v);
  hlo_puts(s, " = stablehlo.constant dense<");
  hlo_put_element(s, h->values[v].dtype, h->values[v].bits);
  hlo_puts(s, "> : ");
  hlo_put_type(h, s, v);
  hlo_put(s, "\n", 1);
}

hlo_val_t hlo_const(hlo_t *h, ttpu_dtype_e dtype, double value) {
  return hlo_splat(h, dtype, 0, NULL, bits_of(dtype, value));
}

hlo_val_t hlo_const_int(hlo_t *h, ttpu_dtype_e dtype, int64_t value) {
  return hlo_splat(h, dtype, 0, NULL, bits_of_int(dtype, value));
}

hlo_val_t hlo_const_complex(hlo_t *h, ttpu_dtype_e dtype, double re, double im) {
  if (!ttpu_dtype_is_complex(dtype)) return hlo_fail(h, "a complex constant of dtype %s", ttpu_dtype_text(dtype));
  const hlo_bits_t bits = {to_bits(round_to(dtype, re)), to_bits(round_to(dtype, im))};
  return hlo_splat(h, dtype, 0, NULL, bits);
}

hlo_val_t hlo_full(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, double value) {
  return hlo_splat(h, dtype, rank, dims, bits_of(dtype, value));
}

hlo_val_t hlo_full_like(hlo_t *h, hlo_val_t like, double value) {
  return hlo_full(h, hlo_dtype(h, like), hlo_rank(h, like), hlo_dims(h, like), value);
}

hlo_val_t hlo_like(hlo_t *h, hlo_val_t x, double value) { return hlo_const(h, hlo_dtype(h, x), value); }

/* Greatest finite magnitude for the one type without infinities. */
static hlo_val_t extreme(hlo_t *h, ttpu_dtype_e dtype, bool is_lowest) {
  const int bits = 8 * (int)ttpu_dtype_bytes(dtype);
  switch (ttpu_dtype_kind(dtype)) {
    case 'b': return hlo_const_int(h, dtype, !is_lowest);
    case 'u': return hlo_const_int(h, dtype, is_lowest ? 0 : -1);
    case 'i': return hlo_const_int(h, dtype, is_lowest ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits));
    case 'f': {
      const double greatest = format_of(dtype)->infinity ? INFINITY : format_of(dtype)->greatest;
      return hlo_const(h, dtype, is_lowest ? -greatest : greatest);
    }
    default: return hlo_fail(h, "%s values have no order", ttpu_dtype_text(dtype));
  }
}

hlo_val_t hlo_lowest(hlo_t *h, ttpu_dtype_e dtype) { return extreme(h, dtype, true); }
hlo_val_t hlo_highest(hlo_t *h, ttpu_dtype_e dtype) { return extreme(h, dtype, false); }

/* --- lists ---------------------------------------------------------------------------------------------- */

/* Element |i| of whichever list is there. */
static hlo_bits_t element(ttpu_dtype_e dtype, const int64_t *ints, const double *doubles, int64_t i) {
  return ints ? bits_of_int(dtype, ints[i]) : bits_of(dtype, doubles[i]);
}

/* Long lists of plain machine types go as the bytes of the elements: exact, and far quicker to write and parse. */
static void put_bytes(ttpu_str_t *s, ttpu_dtype_e dtype, hlo_bits_t bits) {
  static const char hex[] = "0123456789ABCDEF";
  uint64_t word = bits.lo;
  if (dtype == TTPU_F32) {
    const float narrow = (float)from_bits(bits.lo);
    uint32_t half;
    memcpy(&half, &narrow, 4);
    word = half;
  }
  const int64_t bytes = ttpu_dtype_bytes(dtype);
  char text[16];
  for (int64_t b = 0; b < bytes; b++, word >>= 8) { /* least byte first */
    text[2 * b] = hex[word >> 4 & 15];
    text[2 * b + 1] = hex[word & 15];
  }
  hlo_put(s, text, (size_t)bytes * 2);
}

static hlo_val_t const_list(hlo_t *h, ttpu_dtype_e dtype, int64_t count, const int64_t *ints, const double *doubles) {
  if (h->failed) return 0;
  bool is_splat = count > 0;
  const hlo_bits_t first = is_splat ? element(dtype, ints, doubles, 0) : (hlo_bits_t){0, 0};
  for (int64_t i = 1; i < count && is_splat; i++) {
    const hlo_bits_t bits = element(dtype, ints, doubles, i);
    is_splat = bits.lo == first.lo && bits.hi == first.hi;
  }
  if (is_splat) return hlo_splat(h, dtype, 1, &count, first);
  const hlo_val_t v = hlo_new_values(h, 1);
  if (v) hlo_set_type(h, v, dtype, 1, &count);
  if (h->failed) return 0;
  const char kind = ttpu_dtype_kind(dtype);
  const bool as_bytes = count >= 64 && (kind == 'u' || kind == 'i' || dtype == TTPU_F32 || dtype == TTPU_F64);
  ttpu_str_t *s = &h->body;
  hlo_put_value(h, s, v);
  hlo_puts(s, " = stablehlo.constant dense<");
  if (count) hlo_puts(s, as_bytes ? "\"0x" : "[");
  for (int64_t i = 0; i < count; i++) {
    const hlo_bits_t bits = element(dtype, ints, doubles, i);
    if (as_bytes) {
      put_bytes(s, dtype, bits);
    } else {
      if (i) hlo_put(s, ", ", 2);
      hlo_put_element(s, dtype, bits);
    }
  }
  if (count) hlo_puts(s, as_bytes ? "\"" : "]");
  hlo_puts(s, "> : ");
  hlo_put_type(h, s, v);
  hlo_put(s, "\n", 1);
  return v;
}

hlo_val_t hlo_const_ints(hlo_t *h, ttpu_dtype_e dtype, int64_t count, const int64_t *values) {
  static const int64_t none[1];
  return const_list(h, dtype, count, count ? values : none, NULL);
}

hlo_val_t hlo_const_doubles(hlo_t *h, ttpu_dtype_e dtype, int64_t count, const double *values) {
  return const_list(h, dtype, count, NULL, values);
}

/* --- iota ----------------------------------------------------------------------------------------------- */

hlo_val_t hlo_iota(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, int dim) {
  if (h->failed) return 0;
  if (!rank) return hlo_const_int(h, dtype, 0);
  dim = hlo_wrap_dim(h, "iota", dim, rank);
  if (dim < 0) return 0;
  if (dtype == TTPU_BOOL || (ttpu_dtype_is_float(dtype) && ttpu_dtype_bytes(dtype) == 1)) {
    const hlo_val_t wide = hlo_iota(h, TTPU_I32, rank, dims, dim);
    return hlo_convert(h, wide, dtype);
  }
  hlo_attr_int(h, "iota_dimension", dim);
  return hlo_line(h, "stablehlo", "iota", 0, NULL, dtype, rank, dims);
}

hlo_val_t hlo_iota_like(hlo_t *h, ttpu_dtype_e dtype, hlo_val_t like, int dim) {
  return hlo_iota(h, dtype, hlo_rank(h, like), hlo_dims(h, like), dim);
}
