/* hlo_region.c: operations with bodies. Reductions, sorts and scatters have bodies that see nothing outside (constants
 * are written again inside); while and if may capture. A region's values cannot be used after it.
 */
#include "hlo/hlo_text.h"

/* --- the region ----------------------------------------------------------------------------------------- */

void hlo_region(hlo_t *h, bool may_capture, bool scalars, int arg_count, const hlo_val_t *types, hlo_region_t body,
                void *ctx, int result_count, hlo_val_t *results) {
  for (int i = 0; i < result_count; i++) results[i] = 0;
  hlo_val_t *args = hlo_scratch(h, (size_t)arg_count * sizeof *args);
  if (!args) return;
  const hlo_val_t outer_floor = h->floor, outer_begin = h->begin, begin = h->value_count;
  const int32_t outer_known = h->known_count, outer_known_floor = h->known_floor;
  h->begin = begin;
  if (!may_capture) h->floor = begin;
  h->known_floor = outer_known;
  h->depth++;

  ttpu_str_t *s = &h->body;
  hlo_puts(s, arg_count ? "{\n^bb0(" : "{\n");
  for (int i = 0; i < arg_count && !h->failed; i++) {
    args[i] = hlo_new_values(h, 1);
    if (!args[i]) break;
    const hlo_value_t *type = hlo_value(h, types[i]);
    hlo_set_type(h, args[i], type->dtype, scalars ? 0 : type->rank, type->dims);
    if (h->failed) break;
    if (i) hlo_put(s, ", ", 2);
    hlo_put_value(h, s, args[i]);
    hlo_put(s, ": ", 2);
    hlo_put_type(h, s, args[i]);
  }
  if (arg_count) hlo_puts(s, "):\n");
  if (!h->failed) body(h, ctx, args, results);
  hlo_val_t *names = hlo_scratch(h, (size_t)result_count * sizeof *names);
  for (int i = 0; i < result_count && names; i++) names[i] = hlo_resolve(h, "a region's result", results[i]);
  if (!h->failed) {
    hlo_puts(s, "\"stablehlo.return\"(");
    for (int i = 0; i < result_count; i++) {
      if (i) hlo_put(s, ", ", 2);
      hlo_put_value(h, s, names[i]);
    }
    hlo_puts(s, ") : (");
    for (int i = 0; i < result_count; i++) {
      if (i) hlo_put(s, ", ", 2);
      hlo_put_type(h, s, results[i]);
    }
    hlo_puts(s, ") -> ()\n}");
  }

  for (hlo_val_t v = begin; v < h->value_count; v++) h->values[v].is_closed = true;
  hlo_forget_constants(h, outer_known);
  h->known_floor = outer_known_floor;
  h->floor = outer_floor;
  h->begin = outer_begin;
  h->depth--;
}

/* A body's results must have the types that its operation promises. */
static void check_results(hlo_t *h, const char *op, int count, const hlo_val_t *results, const hlo_val_t *types,
                          bool scalars) {
  for (int i = 0; i < count && !h->failed; i++) {
    const hlo_value_t *got = hlo_value(h, results[i]), *type = hlo_value(h, types[i]);
    if (got->dtype != type->dtype || !hlo_same_dims(got->rank, got->dims, scalars ? 0 : type->rank, type->dims))
      hlo_fail(h, "%s: result %d of the body is %s, not %s of %s", op, i, hlo_describe(h, results[i]).text,
               scalars ? "a scalar" : "the type", hlo_describe(h, types[i]).text);
  }
}

static void check_condition(hlo_t *h, const char *op, hlo_val_t v) {
  if (!h->failed && (hlo_dtype(h, v) != TTPU_BOOL || hlo_rank(h, v)))
    hlo_fail(h, "%s: the condition is %s, not one bool", op, hlo_describe(h, v).text);
}

static void clear(int n, hlo_val_t *results) {
  for (int i = 0; i < n; i++) results[i] = 0;
}

static void number(const hlo_t *h, hlo_val_t first, int n, hlo_val_t *results) {
  for (int i = 0; i < n; i++) results[i] = h->failed ? 0 : first + i;
}

/* xs then inits: operands and block arguments of reductions. */
static hlo_val_t *join(hlo_t *h, int n, const hlo_val_t *a, const hlo_val_t *b) {
  hlo_val_t *both = hlo_scratch(h, 2 * (size_t)n * sizeof *both);
  for (int i = 0; i < n && both; i++) {
    both[i] = a[i];
    both[n + i] = b[i];
  }
  return both;
}

/* Equal dims, and inits that are scalars of the operands' dtypes (no inits: NULL). */
static bool check_operands(hlo_t *h, const char *op, int n, const hlo_val_t *xs, const hlo_val_t *inits) {
  if (h->failed) return false;
  if (n < 1) hlo_fail(h, "%s of no operands", op);
  for (int i = 0; i < n && !h->failed; i++) {
    const hlo_value_t *x = hlo_value(h, xs[i]), *first = hlo_value(h, xs[0]);
    if (!x->dtype || !hlo_same_dims(x->rank, x->dims, first->rank, first->dims))
      hlo_fail(h, "%s of %s and %s", op, hlo_describe(h, xs[0]).text, hlo_describe(h, xs[i]).text);
    else if (inits && (hlo_dtype(h, inits[i]) != x->dtype || hlo_rank(h, inits[i])))
      hlo_fail(h, "%s of %s starting from %s", op, hlo_describe(h, xs[i]).text, hlo_describe(h, inits[i]).text);
  }
  return !h->failed;
}

/* --- reduce --------------------------------------------------------------------------------------------- */

/* Rising, without repeats; the sizes that stay are written to |kept|. -1 on failure, else their count. */
static int reduced_dims(hlo_t *h, hlo_val_t x, int count, const int *dims, int *sorted, int64_t *kept) {
  const hlo_value_t *value = hlo_value(h, x);
  uint64_t gone = 0;
  for (int i = 0; i < count; i++) {
    const int dim = hlo_wrap_dim(h, "reduce", dims[i], value->rank);
    if (dim < 0) return -1;
    if (gone >> dim & 1) {
      hlo_fail(h, "reduce: dimension %d is named twice", dim);
      return -1;
    }
    gone |= 1ull << dim;
  }
  int n = 0, m = 0;
  for (int i = 0; i < value->rank; i++) {
    if (gone >> i & 1)
      sorted[m++] = i;
    else
      kept[n++] = value->dims[i];
  }
  return n;
}

/* The op that a dtype really uses, and its neutral element. */
static const char *named_body(hlo_t *h, const char *op, ttpu_dtype_e dtype, hlo_val_t *out_neutral) {
  if (dtype == TTPU_BOOL) {
    if (!strcmp(op, "add") || !strcmp(op, "maximum")) op = "or";
    if (!strcmp(op, "multiply") || !strcmp(op, "minimum")) op = "and";
  }
  if (!strcmp(op, "add") || !strcmp(op, "or") || !strcmp(op, "xor"))
    *out_neutral = hlo_const_int(h, dtype, 0);
  else if (!strcmp(op, "multiply"))
    *out_neutral = hlo_const_int(h, dtype, 1);
  else if (!strcmp(op, "and"))
    *out_neutral = hlo_const_int(h, dtype, -1);
  else if (!strcmp(op, "maximum"))
    *out_neutral = hlo_lowest(h, dtype);
  else if (!strcmp(op, "minimum"))
    *out_neutral = hlo_highest(h, dtype);
  else
    hlo_fail(h, "reduce by %s: its neutral element is not known", op);
  return op;
}

static void apply_named(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  results[0] = hlo_bin(h, ctx, args[0], args[1]);
}

hlo_val_t hlo_reduce(hlo_t *h, const char *op, hlo_val_t x, int count, const int *dims) {
  if (h->failed) return 0;
  if (!count) return hlo_present(h, "reduce", x);
  hlo_val_t neutral = 0;
  op = named_body(h, op, hlo_dtype(h, x), &neutral);
  /* The short form has no room for a body that keeps NaN: see hlo_bin. */
  if (ttpu_dtype_is_float(hlo_dtype(h, x)) && (!strcmp(op, "maximum") || !strcmp(op, "minimum"))) {
    hlo_val_t result;
    hlo_reduce_n(h, 1, &x, &neutral, count, dims, apply_named, (void *)op, &result);
    return result;
  }
  int sorted[TTPU_MAX_RANK];
  int64_t kept[TTPU_MAX_RANK];
  const int rank = reduced_dims(h, x, count, dims, sorted, kept);
  const hlo_val_t from = hlo_resolve(h, "reduce", x);
  neutral = hlo_resolve(h, "reduce", neutral);
  const hlo_val_t v = rank < 0 ? 0 : hlo_new_values(h, 1);
  if (v) hlo_set_type(h, v, hlo_dtype(h, x), rank, kept);
  if (h->failed) return 0;
  ttpu_str_t *s = &h->body;
  hlo_put_value(h, s, v);
  hlo_puts(s, " = stablehlo.reduce(");
  hlo_put_value(h, s, from);
  hlo_puts(s, " init: ");
  hlo_put_value(h, s, neutral);
  hlo_puts(s, ") applies stablehlo.");
  hlo_puts(s, op);
  hlo_puts(s, " across dimensions = [");
  hlo_put_list_int(s, count, sorted);
  hlo_puts(s, "] : (");
  hlo_put_type(h, s, from);
  hlo_puts(s, ", ");
  hlo_put_type(h, s, neutral);
  hlo_puts(s, ") -> ");
  hlo_put_type(h, s, v);
  hlo_puts(s, "\n");
  return v;
}

hlo_val_t hlo_reduce_dim(hlo_t *h, const char *op, hlo_val_t x, int dim) { return hlo_reduce(h, op, x, 1, &dim); }

hlo_val_t hlo_reduce_all(hlo_t *h, const char *op, hlo_val_t x) {
  int dims[TTPU_MAX_RANK];
  for (int i = 0; i < TTPU_MAX_RANK; i++) dims[i] = i;
  return hlo_reduce(h, op, x, hlo_rank(h, x), dims);
}

void hlo_reduce_n(hlo_t *h, int n, const hlo_val_t *xs, const hlo_val_t *inits, int count, const int *dims,
                  hlo_region_t body, void *ctx, hlo_val_t *results) {
  if (!check_operands(h, "reduce", n, xs, inits)) return clear(n, results);
  int sorted[TTPU_MAX_RANK];
  int64_t kept[TTPU_MAX_RANK];
  const int rank = reduced_dims(h, xs[0], count, dims, sorted, kept);
  const hlo_val_t *operands = rank < 0 ? NULL : join(h, n, xs, inits), *types = operands ? join(h, n, inits, xs) : NULL;
  const hlo_val_t first = types ? hlo_open(h, "stablehlo", "reduce", 2 * n, operands, n) : 0;
  if (!first) return clear(n, results);
  hlo_puts(&h->body, " (");
  hlo_region(h, false, true, 2 * n, types, body, ctx, n, results);
  hlo_puts(&h->body, ")");
  check_results(h, "reduce", n, results, xs, true);
  for (int i = 0; i < n; i++) hlo_set_type(h, first + i, hlo_dtype(h, xs[i]), rank, kept);
  hlo_attr_array_int(h, "dimensions", count, sorted);
  hlo_close(h, first, 2 * n, operands, n);
  number(h, first, n, results);
}

/* --- windows -------------------------------------------------------------------------------------------- */

void hlo_reduce_window_n(hlo_t *h, int n, const hlo_val_t *xs, const hlo_val_t *inits, const int64_t *window,
                         const int64_t *stride, const int64_t *base_dilation, const int64_t *window_dilation,
                         const int64_t *pad_low, const int64_t *pad_high, hlo_region_t body, void *ctx,
                         hlo_val_t *results) {
  if (!check_operands(h, "reduce_window", n, xs, inits)) return clear(n, results);
  const int rank = hlo_rank(h, xs[0]);
  int64_t dims[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++)
    dims[i] = hlo_window_size(hlo_dim(h, xs[0], i), base_dilation ? base_dilation[i] : 1, pad_low ? pad_low[i] : 0,
                              pad_high ? pad_high[i] : 0, window[i], window_dilation ? window_dilation[i] : 1,
                              stride ? stride[i] : 1);
  const hlo_val_t *operands = join(h, n, xs, inits), *types = operands ? join(h, n, inits, xs) : NULL;
  const hlo_val_t first = types ? hlo_open(h, "stablehlo", "reduce_window", 2 * n, operands, n) : 0;
  if (!first) return clear(n, results);
  hlo_puts(&h->body, " (");
  hlo_region(h, false, true, 2 * n, types, body, ctx, n, results);
  hlo_puts(&h->body, ")");
  check_results(h, "reduce_window", n, results, xs, true);
  for (int i = 0; i < n; i++) hlo_set_type(h, first + i, hlo_dtype(h, xs[i]), rank, dims);
  hlo_attr_array(h, "window_dimensions", rank, window);
  hlo_attr_repeat(h, "window_strides", rank, stride, 1);
  hlo_attr_repeat(h, "base_dilations", rank, base_dilation, 1);
  hlo_attr_repeat(h, "window_dilations", rank, window_dilation, 1);
  hlo_attr_padding(h, rank, pad_low, pad_high);
  hlo_close(h, first, 2 * n, operands, n);
  number(h, first, n, results);
}

hlo_val_t hlo_reduce_window(hlo_t *h, const char *op, hlo_val_t x, hlo_val_t init, const int64_t *window,
                            const int64_t *stride, const int64_t *base_dilation, const int64_t *window_dilation,
                            const int64_t *pad_low, const int64_t *pad_high) {
  hlo_val_t result = 0;
  hlo_reduce_window_n(h, 1, &x, &init, window, stride, base_dilation, window_dilation, pad_low, pad_high, apply_named,
                      (void *)op, &result);
  return result;
}

/* --- sort ----------------------------------------------------------------------------------------------- */

void hlo_sort(hlo_t *h, int n, const hlo_val_t *xs, int dim, bool stable, hlo_region_t comparator, void *ctx,
              hlo_val_t *results) {
  if (!check_operands(h, "sort", n, xs, NULL)) return clear(n, results);
  dim = hlo_wrap_dim(h, "sort", dim, hlo_rank(h, xs[0]));
  hlo_val_t *types = hlo_scratch(h, 2 * (size_t)n * sizeof *types);
  for (int i = 0; i < 2 * n && types; i++) types[i] = xs[i / 2];
  const hlo_val_t first = types ? hlo_open(h, "stablehlo", "sort", n, xs, n) : 0;
  if (!first) return clear(n, results);
  hlo_val_t order = 0;
  hlo_puts(&h->body, " (");
  hlo_region(h, false, true, 2 * n, types, comparator, ctx, 1, &order);
  hlo_puts(&h->body, ")");
  check_condition(h, "sort", order);
  for (int i = 0; i < n; i++) hlo_set_type(h, first + i, hlo_dtype(h, xs[i]), hlo_rank(h, xs[i]), hlo_dims(h, xs[i]));
  hlo_attr_int(h, "dimension", dim);
  hlo_attr_bool(h, "is_stable", stable);
  hlo_close(h, first, n, xs, n);
  number(h, first, n, results);
}

/* --- control flow --------------------------------------------------------------------------------------- */

void hlo_while(hlo_t *h, int n, const hlo_val_t *init, hlo_region_t cond, hlo_region_t body, void *ctx,
               hlo_val_t *results) {
  if (h->failed) return clear(n, results);
  if (n < 1) {
    hlo_fail(h, "while without carried values");
    return;
  }
  hlo_val_t *out = hlo_scratch(h, (size_t)n * sizeof *out); /* |results| may be |init| */
  const hlo_val_t first = out ? hlo_open(h, "stablehlo", "while", n, init, n) : 0;
  if (!first) return clear(n, results);
  hlo_val_t go = 0;
  hlo_puts(&h->body, " (");
  hlo_region(h, true, false, n, init, cond, ctx, 1, &go);
  check_condition(h, "while", go);
  hlo_puts(&h->body, ", ");
  hlo_region(h, true, false, n, init, body, ctx, n, out);
  hlo_puts(&h->body, ")");
  check_results(h, "while", n, out, init, false);
  for (int i = 0; i < n; i++)
    hlo_set_type(h, first + i, hlo_dtype(h, init[i]), hlo_rank(h, init[i]), hlo_dims(h, init[i]));
  hlo_close(h, first, n, init, n);
  number(h, first, n, results);
}

typedef struct {
  int64_t trips;
  int n;
  hlo_region_t body;
  void *ctx;
} for_t;

static void for_goes_on(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const for_t *loop = ctx;
  results[0] = hlo_lt(h, args[0], hlo_const_int(h, TTPU_I64, loop->trips));
}

static void for_body(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const for_t *loop = ctx;
  loop->body(h, loop->ctx, args, results + 1);
  results[0] = hlo_add(h, args[0], hlo_const_int(h, TTPU_I64, 1));
}

void hlo_for(hlo_t *h, int64_t trips, int n, const hlo_val_t *init, hlo_region_t body, void *ctx, hlo_val_t *results) {
  if (trips <= 0) {
    for (int i = 0; i < n; i++) results[i] = hlo_present(h, "for", init[i]);
    return;
  }
  for_t loop = {trips, n, body, ctx};
  hlo_val_t *all = hlo_scratch(h, (size_t)(n + 1) * sizeof *all);
  if (!all) return clear(n, results);
  all[0] = hlo_const_int(h, TTPU_I64, 0);
  for (int i = 0; i < n; i++) all[i + 1] = init[i];
  hlo_while(h, n + 1, all, for_goes_on, for_body, &loop, all);
  for (int i = 0; i < n; i++) results[i] = all[i + 1];
}

void hlo_if(hlo_t *h, hlo_val_t pred, int n, hlo_region_t then_body, hlo_region_t else_body, void *ctx,
            hlo_val_t *results) {
  check_condition(h, "if", pred);
  if (n < 1) {
    hlo_fail(h, "if without results");
    return;
  }
  hlo_val_t *then_results = hlo_scratch(h, (size_t)n * sizeof *then_results);
  hlo_val_t *else_results = then_results ? hlo_scratch(h, (size_t)n * sizeof *else_results) : NULL;
  const hlo_val_t first = else_results ? hlo_open(h, "stablehlo", "if", 1, &pred, n) : 0;
  if (!first) return clear(n, results);
  hlo_puts(&h->body, " (");
  hlo_region(h, true, false, 0, NULL, then_body, ctx, n, then_results);
  hlo_puts(&h->body, ", ");
  hlo_region(h, true, false, 0, NULL, else_body, ctx, n, else_results);
  hlo_puts(&h->body, ")");
  check_results(h, "if", n, else_results, then_results, false);
  for (int i = 0; i < n; i++) {
    const hlo_value_t *type = hlo_value(h, then_results[i]);
    hlo_set_type(h, first + i, type->dtype, type->rank, type->dims);
  }
  hlo_close(h, first, 1, &pred, n);
  number(h, first, n, results);
}
