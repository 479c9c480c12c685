/* hlo_index.c: gather, scatter, and the two gathers over one dimension that PyTorch's indexing comes down to. The last
 * dimension of |indices| is always the index vector. Indices out of range are clamped by gather and dropped by scatter.
 */
#include "hlo/hlo_text.h"

static void put_field(hlo_t *h, const char *name, int count, const int *dims) {
  if (!count) return; /* an absent field is an empty list */
  ttpu_str_t *s = &h->attributes;
  hlo_puts(s, name);
  hlo_puts(s, " = [");
  hlo_put_list_int(s, count, dims);
  hlo_puts(s, "], ");
}

static void put_vector_dim(hlo_t *h, hlo_val_t indices) {
  hlo_puts(&h->attributes, "index_vector_dim = ");
  hlo_put_int(&h->attributes, hlo_rank(h, indices) - 1);
  hlo_puts(&h->attributes, ">");
}

static bool contains(int count, const int *dims, int dim) {
  for (int i = 0; i < count; i++)
    if (dims[i] == dim) return true;
  return false;
}

static bool check_indices(hlo_t *h, const char *op, hlo_val_t operand, hlo_val_t indices, int map_count) {
  if (h->failed) return false;
  if (hlo_dtype(h, operand) && hlo_rank(h, indices) && ttpu_dtype_is_int(hlo_dtype(h, indices)) &&
      hlo_dim(h, indices, -1) == map_count)
    return true;
  hlo_fail(h, "%s of %s at %s with index vectors of %d", op, hlo_describe(h, operand).text,
           hlo_describe(h, indices).text, map_count);
  return false;
}

hlo_val_t hlo_gather(hlo_t *h, hlo_val_t operand, hlo_val_t indices, const hlo_gather_t *g) {
  if (!check_indices(h, "gather", operand, indices, g->start_map_count)) return 0;
  const hlo_value_t *x = hlo_value(h, operand), *at = hlo_value(h, indices);
  const int rank = at->rank - 1 + g->offset_count;
  int64_t window[TTPU_MAX_RANK], dims[2 * TTPU_MAX_RANK];
  int window_count = 0, next_window = 0, next_batch = 0;
  for (int i = 0; i < x->rank; i++) {
    if (g->slice_sizes[i] < 0 || g->slice_sizes[i] > x->dims[i])
      return hlo_fail(h, "gather of %s: slice size %lld in dimension %d", hlo_describe(h, operand).text,
                      (long long)g->slice_sizes[i], i);
    if (!contains(g->collapsed_count, g->collapsed_dims, i) && !contains(g->batching_count, g->operand_batching, i))
      window[window_count++] = g->slice_sizes[i];
  }
  if (window_count != g->offset_count)
    return hlo_fail(h, "gather of %s: %d window dimensions, %d offset dimensions", hlo_describe(h, operand).text,
                    window_count, g->offset_count);
  for (int i = 0; i < rank; i++)
    dims[i] = contains(g->offset_count, g->offset_dims, i) ? window[next_window++] : at->dims[next_batch++];

  hlo_attr_begin(h, "dimension_numbers");
  hlo_puts(&h->attributes, "#stablehlo.gather<");
  put_field(h, "offset_dims", g->offset_count, g->offset_dims);
  put_field(h, "collapsed_slice_dims", g->collapsed_count, g->collapsed_dims);
  put_field(h, "operand_batching_dims", g->batching_count, g->operand_batching);
  put_field(h, "start_indices_batching_dims", g->batching_count, g->indices_batching);
  put_field(h, "start_index_map", g->start_map_count, g->start_map);
  put_vector_dim(h, indices);
  hlo_attr_bool(h, "indices_are_sorted", g->sorted);
  hlo_attr_array(h, "slice_sizes", x->rank, g->slice_sizes);
  const hlo_val_t operands[] = {operand, indices};
  return hlo_line(h, "stablehlo", "gather", 2, operands, x->dtype, rank, dims);
}

static void combine(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const char *op = ctx;
  results[0] = *op ? hlo_bin(h, op, args[0], args[1]) : args[1];
}

hlo_val_t hlo_scatter(hlo_t *h, const char *op, hlo_val_t operand, hlo_val_t indices, hlo_val_t updates,
                      const hlo_scatter_t *s) {
  if (!check_indices(h, "scatter", operand, indices, s->map_count)) return 0;
  if (hlo_dtype(h, updates) != hlo_dtype(h, operand) ||
      hlo_rank(h, updates) != hlo_rank(h, indices) - 1 + s->window_count ||
      s->window_count + s->inserted_count + s->batching_count != hlo_rank(h, operand))
    return hlo_fail(h, "scatter of %s at %s into %s", hlo_describe(h, updates).text, hlo_describe(h, indices).text,
                    hlo_describe(h, operand).text);
  const hlo_val_t operands[] = {operand, indices, updates}, types[] = {operand, operand};
  const hlo_val_t v = hlo_open(h, "stablehlo", "scatter", 3, operands, 1);
  if (!v) return 0;
  hlo_val_t result = 0;
  hlo_puts(&h->body, " (");
  hlo_region(h, false, true, 2, types, combine, (void *)op, 1, &result);
  hlo_puts(&h->body, ")");
  hlo_set_type(h, v, hlo_dtype(h, operand), hlo_rank(h, operand), hlo_dims(h, operand));
  hlo_attr_begin(h, "scatter_dimension_numbers");
  hlo_puts(&h->attributes, "#stablehlo.scatter<");
  put_field(h, "update_window_dims", s->window_count, s->window_dims);
  put_field(h, "inserted_window_dims", s->inserted_count, s->inserted_dims);
  put_field(h, "input_batching_dims", s->batching_count, s->operand_batching);
  put_field(h, "scatter_indices_batching_dims", s->batching_count, s->indices_batching);
  put_field(h, "scatter_dims_to_operand_dims", s->map_count, s->scatter_map);
  put_vector_dim(h, indices);
  hlo_attr_bool(h, "indices_are_sorted", s->sorted);
  hlo_attr_bool(h, "unique_indices", s->unique);
  hlo_close(h, v, 3, operands, 1);
  return h->failed ? 0 : v;
}

hlo_val_t hlo_take_along(hlo_t *h, hlo_val_t x, hlo_val_t index, int dim) {
  if (h->failed) return 0;
  const int rank = hlo_rank(h, x);
  if (!rank && !hlo_rank(h, index)) return hlo_present(h, "take_along", x);
  dim = hlo_wrap_dim(h, "take_along", dim, rank);
  if (dim < 0) return 0;
  if (hlo_rank(h, index) != rank || !ttpu_dtype_is_int(hlo_dtype(h, index)))
    return hlo_fail(h, "take_along of %s at %s", hlo_describe(h, x).text, hlo_describe(h, index).text);
  if (!hlo_numel(h, index)) return hlo_full(h, hlo_dtype(h, x), rank, hlo_dims(h, index), 0);
  /* Only the part of |x| that the index's other dimensions span is read. */
  int64_t zeros[TTPU_MAX_RANK] = {0}, limit[TTPU_MAX_RANK], ones[TTPU_MAX_RANK];
  int others[TTPU_MAX_RANK], n = 0;
  for (int i = 0; i < rank; i++) {
    limit[i] = i == dim ? hlo_dim(h, x, i) : hlo_dim(h, index, i);
    ones[i] = 1;
    if (i != dim) others[n++] = i;
  }
  const hlo_val_t part = hlo_slice(h, x, zeros, limit, NULL);
  const hlo_val_t vectors = hlo_unsqueeze(h, index, -1);
  const hlo_gather_t g = {.collapsed_count = 1, .collapsed_dims = &dim, .start_map_count = 1, .start_map = &dim,
                          .batching_count = n, .operand_batching = others, .indices_batching = others,
                          .slice_sizes = ones};
  return hlo_gather(h, part, vectors, &g);
}

hlo_val_t hlo_index_select(hlo_t *h, hlo_val_t x, hlo_val_t index, int dim) {
  if (h->failed) return 0;
  const int rank = hlo_rank(h, x);
  dim = hlo_wrap_dim(h, "index_select", dim, rank);
  if (dim < 0) return 0;
  if (hlo_rank(h, index) != 1 || !ttpu_dtype_is_int(hlo_dtype(h, index)))
    return hlo_fail(h, "index_select of %s at %s", hlo_describe(h, x).text, hlo_describe(h, index).text);
  int64_t sizes[TTPU_MAX_RANK], dims[TTPU_MAX_RANK];
  int offsets[TTPU_MAX_RANK], n = 0;
  for (int i = 0; i < rank; i++) {
    sizes[i] = i == dim ? 1 : hlo_dim(h, x, i);
    dims[i] = i == dim ? hlo_dim(h, index, 0) : sizes[i];
    if (i != dim) offsets[n++] = i;
  }
  if (!ttpu_dims_numel(rank, dims)) return hlo_full(h, hlo_dtype(h, x), rank, dims, 0);
  const hlo_val_t vectors = hlo_unsqueeze(h, index, -1);
  const hlo_gather_t g = {.offset_count = n, .offset_dims = offsets, .collapsed_count = 1, .collapsed_dims = &dim,
                          .start_map_count = 1, .start_map = &dim, .slice_sizes = sizes};
  return hlo_gather(h, x, vectors, &g);
}
