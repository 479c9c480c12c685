/* hlo.c: the module, its values and the writer of lines. See hlo.h for the contract, hlo_text.h for the parts. */
#include "hlo/hlo.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "hlo/hlo_text.h"

/* --- module --------------------------------------------------------------------------------------------- */

hlo_t *hlo_create(void) {
  hlo_t *h = ttpu_alloc_zero(1, sizeof *h);
  if (!h) return NULL;
  h->value_count = 1; /* 0 is none */
  h->begin = h->floor = 1;
  return h;
}

void hlo_free(hlo_t *h) {
  if (!h) return;
  ttpu_str_deinit(&h->body);
  ttpu_str_deinit(&h->signature);
  ttpu_str_deinit(&h->module);
  ttpu_str_deinit(&h->attributes);
  ttpu_arena_deinit(&h->arena);
  ttpu_free(h->values);
  ttpu_free(h->known);
  ttpu_status_free(h->status);
  ttpu_free(h);
}

static void latch(hlo_t *h, ttpu_code_e code, const char *fmt, va_list args) {
  if (h->failed) return;
  char text[768];
  vsnprintf(text, sizeof text, fmt, args);
  h->failed = true;
  h->status = ttpu_status_make(code, __FILE__, __LINE__, "%s", text);
}

hlo_val_t hlo_fail(hlo_t *h, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  latch(h, TTPU_INVALID_ARGUMENT, fmt, args);
  va_end(args);
  return 0;
}

hlo_val_t hlo_fail_code(hlo_t *h, ttpu_code_e code, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  latch(h, code, fmt, args);
  va_end(args);
  return 0;
}

static hlo_val_t fail_memory(hlo_t *h) {
  return hlo_fail_code(h, TTPU_RESOURCE_EXHAUSTED, "the host is out of memory");
}

bool hlo_failed(const hlo_t *h) { return h->failed; }

void hlo_set_precision(hlo_t *h, int precision) { h->precision = precision; }

hlo_val_t hlo_parameter(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, const char *attributes) {
  if (h->depth) return hlo_fail(h, "a parameter inside a region");
  const hlo_val_t v = hlo_new_values(h, 1);
  hlo_set_type(h, v, dtype, rank, dims);
  if (h->failed) return 0;
  ttpu_str_t *s = &h->signature;
  if (h->parameter_count++) hlo_puts(s, ", ");
  hlo_put_value(h, s, v);
  hlo_puts(s, ": ");
  hlo_put_type(h, s, v);
  if (attributes) {
    hlo_puts(s, " {");
    hlo_puts(s, attributes);
    hlo_puts(s, "}");
  }
  return v;
}

static void put_types(hlo_t *h, ttpu_str_t *s, int n, const hlo_val_t *values) {
  for (int i = 0; i < n; i++) {
    if (i) hlo_puts(s, ", ");
    hlo_put_type(h, s, values[i]);
  }
}

static void put_values(hlo_t *h, ttpu_str_t *s, int n, const hlo_val_t *values) {
  for (int i = 0; i < n; i++) {
    if (i) hlo_puts(s, ", ");
    hlo_put_value(h, s, values[i]);
  }
}

/* Operands as they can be named here. Small counts use |fixed|. */
static const hlo_val_t *resolve_all(hlo_t *h, const char *op, int n, const hlo_val_t *operands, hlo_val_t *fixed,
                                    int fixed_count) {
  hlo_val_t *names = n <= fixed_count ? fixed : hlo_scratch(h, (size_t)n * sizeof *names);
  for (int i = 0; i < n && names; i++) names[i] = hlo_resolve(h, op, operands[i]);
  return h->failed ? NULL : names;
}

ttpu_status_t *hlo_finish(hlo_t *h, int count, const hlo_val_t *results, const char **out_text, size_t *out_size) {
  *out_text = NULL;
  *out_size = 0;
  ttpu_str_t *s = &h->module;
  s->size = 0;
  hlo_val_t fixed[16];
  const hlo_val_t *names = resolve_all(h, "return", count, results, fixed, 16);
  if (names) {
    hlo_puts(s, "module @m {\nfunc.func public @main(");
    if (h->signature.size) hlo_put(s, h->signature.data, h->signature.size);
    hlo_puts(s, ")");
    if (count) {
      hlo_puts(s, " -> (");
      put_types(h, s, count, names);
      hlo_puts(s, ")");
    }
    hlo_puts(s, " {\n");
    if (h->body.size) hlo_put(s, h->body.data, h->body.size);
    hlo_puts(s, "func.return");
    if (count) {
      hlo_puts(s, " ");
      put_values(h, s, count, names);
      hlo_puts(s, " : ");
      put_types(h, s, count, names);
    }
    hlo_puts(s, "\n}\n}\n");
  }
  if (s->failed || h->signature.failed || h->body.failed || h->attributes.failed) fail_memory(h);
  if (h->failed) {
    ttpu_status_t *status = h->status;
    h->status = NULL;
    return status ? status : TTPU_ERROR(FAILED_PRECONDITION, "this module has failed before");
  }
  *out_text = s->data;
  *out_size = s->size;
  return NULL;
}

/* --- values --------------------------------------------------------------------------------------------- */

ttpu_dtype_e hlo_dtype(const hlo_t *h, hlo_val_t v) { return hlo_value(h, v)->dtype; }
int hlo_rank(const hlo_t *h, hlo_val_t v) { return hlo_value(h, v)->rank; }
const int64_t *hlo_dims(const hlo_t *h, hlo_val_t v) { return hlo_value(h, v)->dims; }

int64_t hlo_dim(const hlo_t *h, hlo_val_t v, int i) {
  const hlo_value_t *value = hlo_value(h, v);
  if (!value->rank) return value->dtype ? 1 : 0; /* a scalar counts as one element of any dimension */
  if (i < 0) i += value->rank;
  return i >= 0 && i < value->rank ? value->dims[i] : 0;
}

int64_t hlo_numel(const hlo_t *h, hlo_val_t v) {
  const hlo_value_t *value = hlo_value(h, v);
  return value->dtype ? ttpu_dims_numel(value->rank, value->dims) : 0;
}

void *hlo_scratch(hlo_t *h, size_t bytes) {
  void *ptr = h->failed ? NULL : ttpu_arena_alloc(&h->arena, bytes ? bytes : 1);
  if (!ptr) fail_memory(h);
  return ptr;
}

hlo_val_t hlo_new_values(hlo_t *h, int count) {
  if (h->failed) return 0;
  if (h->value_count + count > h->value_capacity) {
    int32_t capacity = h->value_capacity ? h->value_capacity * 2 : 256;
    while (capacity < h->value_count + count) capacity *= 2;
    hlo_value_t *values = ttpu_alloc_resize(h->values, (size_t)capacity * sizeof *values);
    if (!values) return fail_memory(h);
    h->values = values;
    h->value_capacity = capacity;
  }
  const hlo_val_t first = h->value_count;
  for (int i = 0; i < count; i++) h->values[first + i] = (hlo_value_t){.offset = count > 1 ? i : -1};
  h->value_count += count;
  return first;
}

void hlo_set_type(hlo_t *h, hlo_val_t v, ttpu_dtype_e dtype, int rank, const int64_t *dims) {
  if (h->failed) return;
  if (rank < 0 || rank > TTPU_MAX_RANK || dtype <= TTPU_DTYPE_NONE || dtype >= TTPU_DTYPE_COUNT) {
    hlo_fail(h, "a value of rank %d and dtype number %d", rank, (int)dtype);
    return;
  }
  for (int i = 0; i < rank; i++)
    if (dims[i] < 0) {
      hlo_fail(h, "a value of negative size: %s", hlo_describe_dims(rank, dims).text);
      return;
    }
  int64_t *copy = hlo_scratch(h, (size_t)rank * sizeof *copy);
  if (!copy) return;
  if (rank) memcpy(copy, dims, (size_t)rank * sizeof *copy);
  hlo_value_t *value = &h->values[v];
  value->dtype = dtype;
  value->rank = rank;
  value->dims = copy;
}

hlo_val_t hlo_present(hlo_t *h, const char *op, hlo_val_t v) {
  if (h->failed) return 0;
  return v > 0 && v < h->value_count && h->values[v].dims ? v : hlo_fail(h, "%s: an operand is missing", op);
}

hlo_val_t hlo_resolve(hlo_t *h, const char *op, hlo_val_t v) {
  if (!hlo_present(h, op, v)) return 0;
  const hlo_value_t *value = &h->values[v];
  if (value->is_splat) {
    if (value->is_closed || v < h->begin) v = hlo_splat(h, value->dtype, value->rank, value->dims, value->bits);
    if (v && !h->values[v].is_written) hlo_put_splat(h, v);
    return v;
  }
  if (!value->is_closed && v >= h->floor) return v;
  return value->is_closed ? hlo_fail(h, "%s: an operand of a region that has ended", op)
                          : hlo_fail(h, "%s: this region cannot capture a value from outside", op);
}

hlo_text_t hlo_describe_dims(int rank, const int64_t *dims) {
  hlo_text_t out = {"["};
  size_t n = 1;
  for (int i = 0; i < rank && n < sizeof out.text - 32; i++)
    n += (size_t)snprintf(out.text + n, sizeof out.text - n, i ? ", %lld" : "%lld", (long long)dims[i]);
  snprintf(out.text + n, sizeof out.text - n, "]");
  return out;
}

hlo_text_t hlo_describe(const hlo_t *h, hlo_val_t v) {
  const hlo_value_t *value = hlo_value(h, v);
  hlo_text_t out;
  snprintf(out.text, sizeof out.text, "%s%.120s", ttpu_dtype_text(value->dtype),
           hlo_describe_dims(value->rank, value->dims).text);
  return out;
}

/* --- text ----------------------------------------------------------------------------------------------- */

void hlo_put_unsigned(ttpu_str_t *s, uint64_t value) {
  char digits[20];
  size_t n = sizeof digits;
  do digits[--n] = (char)('0' + value % 10);
  while (value /= 10);
  hlo_put(s, digits + n, sizeof digits - n);
}

void hlo_put_int(ttpu_str_t *s, int64_t value) {
  if (value < 0) hlo_put(s, "-", 1);
  hlo_put_unsigned(s, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void hlo_put_list(ttpu_str_t *s, int count, const int64_t *values) {
  for (int i = 0; i < count; i++) {
    if (i) hlo_put(s, ", ", 2);
    hlo_put_int(s, values[i]);
  }
}

void hlo_put_list_int(ttpu_str_t *s, int count, const int *values) {
  for (int i = 0; i < count; i++) {
    if (i) hlo_put(s, ", ", 2);
    hlo_put_int(s, values[i]);
  }
}

void hlo_put_shape(ttpu_str_t *s, ttpu_dtype_e dtype, int rank, const int64_t *dims) {
  hlo_put(s, "tensor<", 7);
  for (int i = 0; i < rank; i++) {
    hlo_put_unsigned(s, (uint64_t)dims[i]);
    hlo_put(s, "x", 1);
  }
  hlo_puts(s, ttpu_dtype_stablehlo(dtype));
  hlo_put(s, ">", 1);
}

void hlo_put_value(hlo_t *h, ttpu_str_t *s, hlo_val_t v) {
  const int32_t offset = h->values[v].offset;
  hlo_put(s, "%", 1);
  hlo_put_int(s, offset > 0 ? v - offset : v);
  if (offset < 0) return;
  hlo_put(s, "#", 1);
  hlo_put_int(s, offset);
}

void hlo_put_type(hlo_t *h, ttpu_str_t *s, hlo_val_t v) {
  const hlo_value_t *value = hlo_value(h, v);
  hlo_put_shape(s, value->dtype, value->rank, value->dims);
}

/* --- lines ---------------------------------------------------------------------------------------------- */

hlo_val_t hlo_open(hlo_t *h, const char *dialect, const char *op, int n, const hlo_val_t *operands, int count) {
  hlo_val_t fixed[16];
  const hlo_val_t *names = resolve_all(h, op, n, operands, fixed, 16);
  const hlo_val_t first = names ? hlo_new_values(h, count) : 0;
  if (!first) return 0;
  ttpu_str_t *s = &h->body;
  hlo_put(s, "%", 1);
  hlo_put_int(s, first);
  if (count > 1) {
    hlo_put(s, ":", 1);
    hlo_put_int(s, count);
  }
  hlo_put(s, " = \"", 4);
  if (dialect) {
    hlo_puts(s, dialect);
    hlo_put(s, ".", 1);
  }
  hlo_puts(s, op);
  hlo_put(s, "\"(", 2);
  put_values(h, s, n, names);
  hlo_put(s, ")", 1);
  return first;
}

void hlo_close(hlo_t *h, hlo_val_t first, int n, const hlo_val_t *operands, int count) {
  ttpu_str_t *s = &h->body;
  if (!h->failed) {
    if (h->attributes.size) {
      hlo_put(s, " {", 2);
      hlo_put(s, h->attributes.data, h->attributes.size);
      hlo_put(s, "}", 1);
    }
    hlo_put(s, " : (", 4);
    put_types(h, s, n, operands);
    hlo_put(s, ") -> ", 5);
    if (count > 1) hlo_put(s, "(", 1);
    for (int i = 0; i < count; i++) {
      if (i) hlo_put(s, ", ", 2);
      hlo_put_type(h, s, first + i);
    }
    hlo_puts(s, count > 1 ? ")\n" : "\n");
  }
  h->attributes.size = 0;
}

hlo_val_t hlo_line(hlo_t *h, const char *dialect, const char *op, int n, const hlo_val_t *operands, ttpu_dtype_e dtype,
                   int rank, const int64_t *dims) {
  const hlo_val_t v = hlo_open(h, dialect, op, n, operands, 1);
  if (v) hlo_set_type(h, v, dtype, rank, dims);
  hlo_close(h, v, n, operands, 1);
  return h->failed ? 0 : v;
}

hlo_val_t hlo_line_same(hlo_t *h, const char *op, int n, const hlo_val_t *operands) {
  hlo_val_t fixed[4];
  const hlo_val_t *names = resolve_all(h, op, n, operands, fixed, 4);
  const hlo_val_t v = names ? hlo_new_values(h, 1) : 0;
  if (!v) return 0;
  hlo_value_t *value = &h->values[v];
  const hlo_value_t *like = &h->values[operands[0]];
  value->dtype = like->dtype;
  value->rank = like->rank;
  value->dims = like->dims;
  ttpu_str_t *s = &h->body;
  hlo_put_value(h, s, v);
  hlo_put(s, " = stablehlo.", 13);
  hlo_puts(s, op);
  hlo_put(s, " ", 1);
  put_values(h, s, n, names);
  hlo_put(s, " : ", 3);
  hlo_put_type(h, s, v);
  hlo_put(s, "\n", 1);
  return v;
}

hlo_val_t hlo_raw(hlo_t *h, const char *op, int count, const hlo_val_t *operands, const char *attributes,
                  ttpu_dtype_e dtype, int rank, const int64_t *dims) {
  const size_t size = attributes ? strlen(attributes) : 0;
  h->attributes.size = 0;
  if (size >= 2) hlo_put(&h->attributes, attributes + 1, size - 2); /* the braces are the line's own */
  return hlo_line(h, NULL, op, count, operands, dtype, rank, dims);
}

/* --- attributes ----------------------------------------------------------------------------------------- */

void hlo_attr_begin(hlo_t *h, const char *name) {
  ttpu_str_t *s = &h->attributes;
  if (s->size) hlo_put(s, ", ", 2);
  hlo_puts(s, name);
  hlo_put(s, " = ", 3);
}

static void array_begin(hlo_t *h, const char *name, int count) {
  hlo_attr_begin(h, name);
  hlo_puts(&h->attributes, count ? "array<i64: " : "array<i64");
}

void hlo_attr_array(hlo_t *h, const char *name, int count, const int64_t *values) {
  array_begin(h, name, count);
  hlo_put_list(&h->attributes, count, values);
  hlo_put(&h->attributes, ">", 1);
}

void hlo_attr_array_int(hlo_t *h, const char *name, int count, const int *values) {
  array_begin(h, name, count);
  hlo_put_list_int(&h->attributes, count, values);
  hlo_put(&h->attributes, ">", 1);
}

void hlo_attr_repeat(hlo_t *h, const char *name, int count, const int64_t *values, int64_t absent) {
  int64_t filled[TTPU_MAX_RANK];
  for (int i = 0; i < count; i++) filled[i] = values ? values[i] : absent;
  hlo_attr_array(h, name, count, filled);
}

void hlo_attr_bools(hlo_t *h, const char *name, int count, bool value) {
  hlo_attr_begin(h, name);
  hlo_puts(&h->attributes, count ? "array<i1: " : "array<i1");
  for (int i = 0; i < count; i++) {
    if (i) hlo_put(&h->attributes, ", ", 2);
    hlo_puts(&h->attributes, value ? "true" : "false");
  }
  hlo_put(&h->attributes, ">", 1);
}

void hlo_attr_text(hlo_t *h, const char *name, const char *text) {
  hlo_attr_begin(h, name);
  hlo_puts(&h->attributes, text);
}

void hlo_attr_bool(hlo_t *h, const char *name, bool value) { hlo_attr_text(h, name, value ? "true" : "false"); }

void hlo_attr_int(hlo_t *h, const char *name, int64_t value) {
  hlo_attr_begin(h, name);
  hlo_put_int(&h->attributes, value);
  hlo_puts(&h->attributes, " : i64");
}

void hlo_attr_padding(hlo_t *h, int count, const int64_t *low, const int64_t *high) {
  ttpu_str_t *s = &h->attributes;
  hlo_attr_begin(h, "padding");
  hlo_puts(s, "dense<");
  if (count) hlo_puts(s, "[");
  for (int i = 0; i < count; i++) {
    const int64_t pair[] = {low ? low[i] : 0, high ? high[i] : 0};
    hlo_puts(s, i ? ", [" : "[");
    hlo_put_list(s, 2, pair);
    hlo_put(s, "]", 1);
  }
  hlo_puts(s, count ? "]> : tensor<" : "> : tensor<");
  hlo_put_int(s, count);
  hlo_puts(s, "x2xi64>");
}
