/* hlo_text.h: what the files of src/hlo share: the module being written, and the writer of one line.
 *
 * A line is opened (operands resolved, results numbered, "%5 = "op"(%1, %2)" written), then its regions are written,
 * then its attributes are collected in |h->attributes|, then it is closed with the types. Attributes are collected last
 * because the lines of a region use the same scratch.
 */
#ifndef TTPU_HLO_HLO_TEXT_H_
#define TTPU_HLO_HLO_TEXT_H_

#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "hlo/hlo.h"

enum { HLO_CONST_BUCKETS = 64 };

/* A splat's element: a float as a double already rounded to the dtype, an integer as its bits in lo, complex (re, im). */
typedef struct {
  uint64_t lo, hi;
} hlo_bits_t;

typedef struct {
  ttpu_dtype_e dtype;
  int32_t rank;
  const int64_t *dims;
  int32_t offset;  /* among the results of its line, which are written %first#offset; -1: the only one */
  bool is_splat;   /* a constant with one element repeated: written at its first use, and again out of its region */
  bool is_written; /* of a splat */
  bool is_closed;  /* its region has ended */
  hlo_bits_t bits; /* of a splat */
} hlo_value_t;

/* Constants of the innermost region in reach, chained by bucket; a region pops what it pushed. */
typedef struct {
  hlo_val_t value;
  int32_t next, bucket;
} hlo_known_t;

struct hlo {
  ttpu_str_t body, signature, module, attributes;
  ttpu_arena_t arena;
  hlo_value_t *values; /* [0] is "none" */
  int32_t value_count, value_capacity;
  hlo_known_t *known;
  int32_t known_count, known_capacity, known_floor;
  int32_t known_heads[HLO_CONST_BUCKETS]; /* index in |known| + 1 */
  hlo_val_t begin; /* first value of the innermost region */
  hlo_val_t floor; /* values below it cannot be captured here */
  int depth, parameter_count, precision;
  bool failed;
  ttpu_status_t *status;
};

/* --- text --- */

static inline void hlo_put(ttpu_str_t *s, const char *text, size_t size) {
  if (s->size + size < s->capacity && !s->failed) {
    memcpy(s->data + s->size, text, size);
    s->size += size;
    s->data[s->size] = 0;
  } else {
    ttpu_str_append(s, text, size);
  }
}
static inline void hlo_puts(ttpu_str_t *s, const char *text) { hlo_put(s, text, strlen(text)); }
void hlo_put_int(ttpu_str_t *s, int64_t value);
void hlo_put_unsigned(ttpu_str_t *s, uint64_t value);
void hlo_put_list(ttpu_str_t *s, int count, const int64_t *values);   /* "1, 2, 3" */
void hlo_put_list_int(ttpu_str_t *s, int count, const int *values);
void hlo_put_shape(ttpu_str_t *s, ttpu_dtype_e dtype, int rank, const int64_t *dims); /* "tensor<2x3xf32>" */
void hlo_put_value(hlo_t *h, ttpu_str_t *s, hlo_val_t v);  /* "%7" or "%5#2" */
void hlo_put_type(hlo_t *h, ttpu_str_t *s, hlo_val_t v);
void hlo_put_element(ttpu_str_t *s, ttpu_dtype_e dtype, hlo_bits_t bits);

/* --- values --- */

/* Never fails: the "none" value for one that does not exist. */
static inline const hlo_value_t *hlo_value(const hlo_t *h, hlo_val_t v) {
  static const int64_t zeros[2 * TTPU_MAX_RANK];
  static const hlo_value_t none = {.dims = zeros + TTPU_MAX_RANK, .offset = -1};
  return v > 0 && v < h->value_count && h->values[v].dims ? &h->values[v] : &none;
}
/* |count| results of one line, numbered in a row; types are set later. 0 on failure. */
hlo_val_t hlo_new_values(hlo_t *h, int count);
void hlo_set_type(hlo_t *h, hlo_val_t v, ttpu_dtype_e dtype, int rank, const int64_t *dims);
/* |v| as it can be named here, for a line that is written next: a splat of another region is written again, anything
 * else out of reach is a failure. */
hlo_val_t hlo_resolve(hlo_t *h, const char *op, hlo_val_t v);
/* |v| itself, for an operation that changes nothing; a failure when there is no such value. */
hlo_val_t hlo_present(hlo_t *h, const char *op, hlo_val_t v);
/* Scratch that lives as long as the module; latches a failure and gives NULL when memory is out. */
void *hlo_scratch(hlo_t *h, size_t bytes);
/* "float32[2, 3]" for messages. */
typedef struct {
  char text[160];
} hlo_text_t;
hlo_text_t hlo_describe(const hlo_t *h, hlo_val_t v);
hlo_text_t hlo_describe_dims(int rank, const int64_t *dims);

/* --- lines --- */

/* |dialect| may be NULL when |op| has it. Returns the first result, 0 on failure; |count| results are untyped. */
hlo_val_t hlo_open(hlo_t *h, const char *dialect, const char *op, int n, const hlo_val_t *operands, int count);
void hlo_close(hlo_t *h, hlo_val_t first, int n, const hlo_val_t *operands, int count);
/* A line without regions and with one result; attributes were collected before. */
hlo_val_t hlo_line(hlo_t *h, const char *dialect, const char *op, int n, const hlo_val_t *operands, ttpu_dtype_e dtype,
                   int rank, const int64_t *dims);
/* The short form, for operands and result of one type: "%3 = stablehlo.add %1, %2 : tensor<4xf32>". */
hlo_val_t hlo_line_same(hlo_t *h, const char *op, int n, const hlo_val_t *operands);

/* Collect one attribute. "name = array<i64: 1, 2>", "name = text", "name = true", "name = 3 : i64". */
void hlo_attr_array(hlo_t *h, const char *name, int count, const int64_t *values);
void hlo_attr_array_int(hlo_t *h, const char *name, int count, const int *values);
void hlo_attr_repeat(hlo_t *h, const char *name, int count, const int64_t *values, int64_t absent); /* values may be NULL */
void hlo_attr_bools(hlo_t *h, const char *name, int count, bool value);
void hlo_attr_text(hlo_t *h, const char *name, const char *text);
void hlo_attr_bool(hlo_t *h, const char *name, bool value);
void hlo_attr_int(hlo_t *h, const char *name, int64_t value);
void hlo_attr_padding(hlo_t *h, int count, const int64_t *low, const int64_t *high); /* NULL: zeros */
/* Starts "name = " with the comma; the rest is written to |h->attributes|. */
void hlo_attr_begin(hlo_t *h, const char *name);

/* --- constants --- */

/* The line of a splat is written when it is resolved: most scalars only ever become splats of another shape. */
hlo_val_t hlo_splat(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, hlo_bits_t bits);
void hlo_put_splat(hlo_t *h, hlo_val_t v);
void hlo_forget_constants(hlo_t *h, int32_t count); /* back to the first |count| known */

/* --- shapes --- */

/* The broadcast of |count| values' dims, PyTorch's rule. False and a latched failure naming |op| when there is none. */
bool hlo_broadcast_dims(hlo_t *h, const char *op, int count, const hlo_val_t *xs, int *out_rank, int64_t *out_dims);
static inline bool hlo_same_dims(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
  return rank_a == rank_b && (!rank_a || !memcmp(a, b, (size_t)rank_a * sizeof *a));
}
/* Wraps a negative dimension; -1 and a latched failure when out of range. */
int hlo_wrap_dim(hlo_t *h, const char *op, int dim, int rank);
/* (size - window) / stride + 1 with dilations and pads; what convolutions and window reductions give. */
int64_t hlo_window_size(int64_t size, int64_t base_dilation, int64_t low, int64_t high, int64_t window,
                        int64_t window_dilation, int64_t stride);

/* --- regions --- */

/* Writes "{ ^bb0(%4: t, ...): ... return }". |types|: one value an argument whose type it has, or its scalar type when
 * |scalars|. |may_capture|: values of the surrounding region are in reach. |results| are the body's. */
void hlo_region(hlo_t *h, bool may_capture, bool scalars, int arg_count, const hlo_val_t *types, hlo_region_t body,
                void *ctx, int result_count, hlo_val_t *results);

#endif /* TTPU_HLO_HLO_TEXT_H_ */
