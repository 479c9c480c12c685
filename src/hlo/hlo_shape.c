/* hlo_shape.c: operations that move elements, and the shape arithmetic that other files share. */
#include "hlo/hlo_text.h"

/* --- shape arithmetic ----------------------------------------------------------------------------------- */

bool hlo_broadcast_dims(hlo_t *h, const char *op, int count, const hlo_val_t *xs, int *out_rank, int64_t *out_dims) {
  int rank = 0;
  for (int i = 0; i < count; i++)
    if (hlo_rank(h, xs[i]) > rank) rank = hlo_rank(h, xs[i]);
  for (int d = 0; d < rank; d++) out_dims[d] = 1;
  for (int i = 0; i < count; i++) {
    const hlo_value_t *value = hlo_value(h, xs[i]);
    for (int d = 0; d < value->rank; d++) {
      int64_t *out = &out_dims[rank - value->rank + d];
      if (value->dims[d] == *out || value->dims[d] == 1) continue;
      if (*out != 1) {
        int other = 0;
        while (other < i - 1 && hlo_rank(h, xs[other]) < rank) other++;
        hlo_fail(h, "%s: the sizes do not broadcast: %s and %s", op, hlo_describe(h, xs[i ? other : 0]).text,
                 hlo_describe(h, xs[i]).text);
        return false;
      }
      *out = value->dims[d];
    }
  }
  *out_rank = rank;
  return !h->failed;
}

int hlo_wrap_dim(hlo_t *h, const char *op, int dim, int rank) {
  const int wrapped = dim < 0 ? dim + rank : dim;
  if (wrapped >= 0 && wrapped < rank) return wrapped;
  hlo_fail(h, "%s: dimension %d of rank %d", op, dim, rank);
  return -1;
}

int64_t hlo_window_size(int64_t size, int64_t base_dilation, int64_t low, int64_t high, int64_t window,
                        int64_t window_dilation, int64_t stride) {
  const int64_t padded = (size ? (size - 1) * base_dilation + 1 : 0) + low + high;
  const int64_t span = window ? (window - 1) * window_dilation + 1 : 0;
  return padded < span || padded == 0 ? 0 : (padded - span) / stride + 1;
}

/* --- reshape, transpose --------------------------------------------------------------------------------- */

hlo_val_t hlo_reshape(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims) {
  const hlo_value_t *value = hlo_value(h, x);
  if (h->failed) return 0;
  if (hlo_same_dims(value->rank, value->dims, rank, dims)) return hlo_present(h, "reshape", x);
  if (ttpu_dims_numel(rank, dims) != hlo_numel(h, x))
    return hlo_fail(h, "reshape of %s to %s", hlo_describe(h, x).text, hlo_describe_dims(rank, dims).text);
  if (value->is_splat) return hlo_splat(h, value->dtype, rank, dims, value->bits);
  return hlo_line(h, "stablehlo", "reshape", 1, &x, value->dtype, rank, dims);
}

hlo_val_t hlo_flatten(hlo_t *h, hlo_val_t x) {
  const int64_t numel = hlo_numel(h, x);
  return hlo_reshape(h, x, 1, &numel);
}

hlo_val_t hlo_squeeze(hlo_t *h, hlo_val_t x, int dim) {
  const hlo_value_t *value = hlo_value(h, x);
  dim = hlo_wrap_dim(h, "squeeze", dim, value->rank);
  if (dim < 0) return 0;
  int64_t dims[TTPU_MAX_RANK];
  for (int i = 0, n = 0; i < value->rank; i++)
    if (i != dim) dims[n++] = value->dims[i];
  return hlo_reshape(h, x, value->rank - 1, dims);
}

hlo_val_t hlo_unsqueeze(hlo_t *h, hlo_val_t x, int dim) {
  const hlo_value_t *value = hlo_value(h, x);
  dim = hlo_wrap_dim(h, "unsqueeze", dim, value->rank + 1);
  if (dim < 0) return 0;
  int64_t dims[TTPU_MAX_RANK + 1];
  for (int i = 0; i <= value->rank; i++) dims[i] = i == dim ? 1 : value->dims[i - (i > dim)];
  return hlo_reshape(h, x, value->rank + 1, dims);
}

hlo_val_t hlo_transpose(hlo_t *h, hlo_val_t x, const int *permutation) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  int64_t dims[TTPU_MAX_RANK];
  uint64_t seen = 0;
  bool is_identity = true;
  for (int i = 0; i < value->rank; i++) {
    const int from = permutation[i];
    if (from < 0 || from >= value->rank || seen >> from & 1)
      return hlo_fail(h, "transpose of %s: not a permutation", hlo_describe(h, x).text);
    seen |= 1ull << from;
    is_identity &= from == i;
    dims[i] = value->dims[from];
  }
  if (is_identity) return hlo_present(h, "transpose", x);
  if (value->is_splat) return hlo_splat(h, value->dtype, value->rank, dims, value->bits);
  hlo_attr_array_int(h, "permutation", value->rank, permutation);
  return hlo_line(h, "stablehlo", "transpose", 1, &x, value->dtype, value->rank, dims);
}

hlo_val_t hlo_swap(hlo_t *h, hlo_val_t x, int a, int b) {
  const int rank = hlo_rank(h, x);
  a = hlo_wrap_dim(h, "swap", a, rank);
  b = hlo_wrap_dim(h, "swap", b, rank);
  if (a < 0 || b < 0) return 0;
  int permutation[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++) permutation[i] = i == a ? b : i == b ? a : i;
  return hlo_transpose(h, x, permutation);
}

/* --- broadcast ------------------------------------------------------------------------------------------ */

hlo_val_t hlo_broadcast_in(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims, const int *map) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  bool is_identity = value->rank == rank;
  uint64_t seen = 0;
  for (int i = 0; i < value->rank; i++) {
    if (map[i] < 0 || map[i] >= rank || seen >> map[i] & 1 || (value->dims[i] != 1 && value->dims[i] != dims[map[i]]))
      return hlo_fail(h, "broadcast of %s to %s", hlo_describe(h, x).text, hlo_describe_dims(rank, dims).text);
    seen |= 1ull << map[i];
    is_identity &= map[i] == i && value->dims[i] == dims[i];
  }
  if (is_identity) return hlo_present(h, "broadcast", x);
  if (value->is_splat) return hlo_splat(h, value->dtype, rank, dims, value->bits);
  hlo_attr_array_int(h, "broadcast_dimensions", value->rank, map);
  return hlo_line(h, "stablehlo", "broadcast_in_dim", 1, &x, value->dtype, rank, dims);
}

hlo_val_t hlo_expand(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims) {
  const int own = hlo_rank(h, x);
  if (own > rank)
    return hlo_fail(h, "expand of %s to %s", hlo_describe(h, x).text, hlo_describe_dims(rank, dims).text);
  int map[TTPU_MAX_RANK];
  for (int i = 0; i < own; i++) map[i] = rank - own + i;
  return hlo_broadcast_in(h, x, rank, dims, map);
}

hlo_val_t hlo_expand_like(hlo_t *h, hlo_val_t x, hlo_val_t like) {
  return hlo_expand(h, x, hlo_rank(h, like), hlo_dims(h, like));
}

hlo_val_t hlo_spread(hlo_t *h, hlo_val_t x, hlo_val_t like, int count, const int *reduced) {
  const int rank = hlo_rank(h, like);
  uint64_t gone = 0;
  for (int i = 0; i < count; i++) {
    const int dim = hlo_wrap_dim(h, "spread", reduced[i], rank);
    if (dim < 0) return 0;
    gone |= 1ull << dim;
  }
  int map[TTPU_MAX_RANK], n = 0;
  for (int i = 0; i < rank; i++)
    if (!(gone >> i & 1)) map[n++] = i;
  if (n != hlo_rank(h, x))
    return hlo_fail(h, "spread of %s over %s", hlo_describe(h, x).text, hlo_describe(h, like).text);
  return hlo_broadcast_in(h, x, rank, hlo_dims(h, like), map);
}

/* --- slice, concatenate, pad, reverse ------------------------------------------------------------------- */

hlo_val_t hlo_slice(hlo_t *h, hlo_val_t x, const int64_t *start, const int64_t *limit, const int64_t *step) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  int64_t dims[TTPU_MAX_RANK];
  bool is_whole = true;
  for (int i = 0; i < value->rank; i++) {
    const int64_t by = step ? step[i] : 1;
    if (start[i] < 0 || start[i] > limit[i] || limit[i] > value->dims[i] || by < 1)
      return hlo_fail(h, "slice %lld:%lld:%lld of dimension %d of %s", (long long)start[i], (long long)limit[i],
                      (long long)by, i, hlo_describe(h, x).text);
    dims[i] = (limit[i] - start[i] + by - 1) / by;
    is_whole &= dims[i] == value->dims[i];
  }
  if (is_whole) return hlo_present(h, "slice", x);
  if (value->is_splat) return hlo_splat(h, value->dtype, value->rank, dims, value->bits);
  hlo_attr_array(h, "start_indices", value->rank, start);
  hlo_attr_array(h, "limit_indices", value->rank, limit);
  hlo_attr_repeat(h, "strides", value->rank, step, 1);
  return hlo_line(h, "stablehlo", "slice", 1, &x, value->dtype, value->rank, dims);
}

hlo_val_t hlo_slice_dim(hlo_t *h, hlo_val_t x, int dim, int64_t start, int64_t limit, int64_t step) {
  const hlo_value_t *value = hlo_value(h, x);
  dim = hlo_wrap_dim(h, "slice", dim, value->rank);
  if (dim < 0) return 0;
  int64_t starts[TTPU_MAX_RANK], limits[TTPU_MAX_RANK], steps[TTPU_MAX_RANK];
  for (int i = 0; i < value->rank; i++) {
    starts[i] = i == dim ? start : 0;
    limits[i] = i == dim ? limit : value->dims[i];
    steps[i] = i == dim ? step : 1;
  }
  return hlo_slice(h, x, starts, limits, steps);
}

hlo_val_t hlo_concat(hlo_t *h, int count, const hlo_val_t *xs, int dim) {
  if (h->failed) return 0;
  if (count < 1) return hlo_fail(h, "concatenate of no operands");
  const hlo_value_t *first = hlo_value(h, xs[0]);
  dim = hlo_wrap_dim(h, "concatenate", dim, first->rank);
  if (dim < 0) return 0;
  if (count == 1) return hlo_present(h, "concatenate", xs[0]);
  int64_t dims[TTPU_MAX_RANK];
  memcpy(dims, first->dims, (size_t)first->rank * sizeof *dims);
  for (int i = 1; i < count; i++) {
    const hlo_value_t *other = hlo_value(h, xs[i]);
    bool fits = other->rank == first->rank && other->dtype == first->dtype;
    for (int d = 0; d < first->rank && fits; d++) fits = d == dim || other->dims[d] == first->dims[d];
    if (!fits)
      return hlo_fail(h, "concatenate along dimension %d: %s and %s", dim, hlo_describe(h, xs[0]).text,
                      hlo_describe(h, xs[i]).text);
    dims[dim] += other->dims[dim];
  }
  hlo_attr_int(h, "dimension", dim);
  return hlo_line(h, "stablehlo", "concatenate", count, xs, first->dtype, first->rank, dims);
}

hlo_val_t hlo_pad(hlo_t *h, hlo_val_t x, hlo_val_t pad, const int64_t *low, const int64_t *high,
                  const int64_t *interior) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  if (hlo_dtype(h, pad) != value->dtype || hlo_rank(h, pad))
    return hlo_fail(h, "pad of %s with %s", hlo_describe(h, x).text, hlo_describe(h, pad).text);
  int64_t dims[TTPU_MAX_RANK];
  bool is_same = true;
  for (int i = 0; i < value->rank; i++) {
    const int64_t n = value->dims[i], between = interior ? interior[i] : 0;
    dims[i] = low[i] + high[i] + (n ? n + (n - 1) * between : 0);
    is_same &= !low[i] && !high[i] && !between;
  }
  if (is_same) return hlo_present(h, "pad", x);
  hlo_attr_array(h, "edge_padding_low", value->rank, low);
  hlo_attr_array(h, "edge_padding_high", value->rank, high);
  hlo_attr_repeat(h, "interior_padding", value->rank, interior, 0);
  const hlo_val_t operands[] = {x, pad};
  return hlo_line(h, "stablehlo", "pad", 2, operands, value->dtype, value->rank, dims);
}

hlo_val_t hlo_pad_dim(hlo_t *h, hlo_val_t x, double value, int dim, int64_t low, int64_t high) {
  const int rank = hlo_rank(h, x);
  dim = hlo_wrap_dim(h, "pad", dim, rank);
  if (dim < 0) return 0;
  int64_t lows[TTPU_MAX_RANK] = {0}, highs[TTPU_MAX_RANK] = {0};
  lows[dim] = low;
  highs[dim] = high;
  return hlo_pad(h, x, hlo_like(h, x, value), lows, highs, NULL);
}

hlo_val_t hlo_reverse(hlo_t *h, hlo_val_t x, int count, const int *dims) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  int wrapped[TTPU_MAX_RANK];
  for (int i = 0; i < count; i++)
    if ((wrapped[i] = hlo_wrap_dim(h, "reverse", dims[i], value->rank)) < 0) return 0;
  if (!count || value->is_splat) return hlo_present(h, "reverse", x);
  hlo_attr_array_int(h, "dimensions", count, wrapped);
  return hlo_line(h, "stablehlo", "reverse", 1, &x, value->dtype, value->rank, value->dims);
}

/* --- dynamic slices ------------------------------------------------------------------------------------- */

/* Operands |x| (and |update|), then the starts, all of one type: i64 unless they agree on another. */
static int with_starts(hlo_t *h, hlo_val_t x, hlo_val_t update, const hlo_val_t *starts, hlo_val_t *out) {
  int n = 0;
  out[n++] = x;
  if (update) out[n++] = update;
  const int rank = hlo_rank(h, x);
  bool agree = true;
  for (int i = 0; i < rank; i++) {
    if (hlo_rank(h, starts[i]) || !ttpu_dtype_is_int(hlo_dtype(h, starts[i])))
      hlo_fail(h, "a slice starts at %s", hlo_describe(h, starts[i]).text);
    agree &= hlo_dtype(h, starts[i]) == hlo_dtype(h, starts[0]);
  }
  for (int i = 0; i < rank; i++) out[n++] = agree ? starts[i] : hlo_convert(h, starts[i], TTPU_I64);
  return n;
}

hlo_val_t hlo_dynamic_slice(hlo_t *h, hlo_val_t x, const hlo_val_t *starts, const int64_t *sizes) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  const int rank = value->rank;
  if (!rank) return hlo_present(h, "dynamic_slice", x);
  for (int i = 0; i < rank; i++)
    if (sizes[i] < 0 || sizes[i] > value->dims[i])
      return hlo_fail(h, "dynamic_slice of %s: size %lld in dimension %d", hlo_describe(h, x).text, (long long)sizes[i], i);
  hlo_val_t operands[TTPU_MAX_RANK + 2];
  const int n = with_starts(h, x, 0, starts, operands);
  hlo_attr_array(h, "slice_sizes", rank, sizes);
  return hlo_line(h, "stablehlo", "dynamic_slice", n, operands, hlo_dtype(h, x), rank, sizes);
}

hlo_val_t hlo_dynamic_update_slice(hlo_t *h, hlo_val_t x, hlo_val_t update, const hlo_val_t *starts) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x), *part = hlo_value(h, update);
  const int rank = value->rank;
  bool fits = part->rank == rank && part->dtype == value->dtype;
  for (int i = 0; i < rank && fits; i++) fits = part->dims[i] <= value->dims[i];
  if (!fits)
    return hlo_fail(h, "dynamic_update_slice of %s with %s", hlo_describe(h, x).text, hlo_describe(h, update).text);
  if (!rank) return hlo_present(h, "dynamic_update_slice", update);
  hlo_val_t operands[TTPU_MAX_RANK + 2];
  const int n = with_starts(h, x, update, starts, operands);
  return hlo_line(h, "stablehlo", "dynamic_update_slice", n, operands, hlo_dtype(h, x), rank, hlo_dims(h, x));
}
