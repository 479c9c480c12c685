/* shape.c: joining, padding, turning and masking. Plain views never come here (graph/view.h). */
#include <string.h>

#include "base/alloc.h"
#include "ops/part.h"

static bool is_named(const op_call_t *c, const char *detail) { return !strcmp(op_detail(c), detail); }

/* --- joining ------------------------------------------------------------------------------------------ */

/* The tensors of argument 0 joined along |dim|, each with a new dimension there first when |stacked|. An empty tensor
 * contributes nothing (by PyTorch's old rule an empty 1-dim one need not even fit). */
static void join(hlo_t *h, const op_call_t *c, int dim, bool stacked) {
  if (part_ret_empty(h, c)) return;
  const ttpu_dtype_e t = op_result_dtype(c, 0);
  const int listed = op_list_size(c, 0);
  hlo_val_t *xs = ttpu_alloc_zero((size_t)listed + 1, sizeof *xs);
  if (!xs) return (void)hlo_fail_code(h, TTPU_RESOURCE_EXHAUSTED, "the host is out of memory");
  int count = 0;
  for (int j = 0; j < listed; j++) {
    const hlo_val_t raw = op_list_tensor(h, c, 0, j);
    if (hlo_failed(h) || hlo_numel(h, raw) == 0) continue;
    const hlo_val_t x = hlo_convert(h, raw, t);
    xs[count++] = stacked ? hlo_unsqueeze(h, x, dim) : x;
  }
  const hlo_val_t all = count == 1 ? xs[0] : hlo_concat(h, count, xs, dim);
  ttpu_free(xs);
  op_ret(h, c, 0, all);
}

EMIT(cat) { join(h, c, op_dim(c, 1, op_result_rank(c, 0)), false); }

EMIT(stack) { join(h, c, op_dim(c, 1, op_result_rank(c, 0)), true); }

/* --- turning ------------------------------------------------------------------------------------------ */

EMIT(flip) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const int64_t *listed;
  const int count = op_ints(c, 1, &listed), rank = hlo_rank(h, x);
  int dims[TTPU_MAX_RANK];
  for (int i = 0; i < count; i++) dims[i] = (int)(listed[i] < 0 ? listed[i] + rank : listed[i]);
  const hlo_val_t turned = count > 0 && rank > 0 ? hlo_reverse(h, x, count, dims) : x;
  op_ret(h, c, 0, turned);
}

static hlo_val_t roll_dim(hlo_t *h, hlo_val_t x, int dim, int64_t shift) {
  const int64_t n = hlo_dim(h, x, dim);
  if (n == 0) return x;
  const int64_t cut = ((-shift) % n + n) % n;
  if (cut == 0) return x;
  const hlo_val_t tail = hlo_slice_dim(h, x, dim, cut, n, 1), head = hlo_slice_dim(h, x, dim, 0, cut, 1);
  const hlo_val_t parts[] = {tail, head};
  return hlo_concat(h, 2, parts, dim);
}

EMIT(roll) {
  hlo_val_t x = op_tensor(h, c, 0);
  const int64_t *shifts, *dims;
  const int count = op_ints(c, 1, &shifts), dim_count = op_ints(c, 2, &dims), rank = hlo_rank(h, x);
  if (dim_count == 0 && count == 1) {
    const hlo_val_t flat = hlo_flatten(h, x);
    x = roll_dim(h, flat, 0, shifts[0]);
    x = part_as_result(h, c, 0, x);
  } else {
    for (int i = 0; i < dim_count && i < count && rank > 0; i++) {
      x = roll_dim(h, x, (int)(dims[i] < 0 ? dims[i] + rank : dims[i]), shifts[i]);
    }
  }
  op_ret(h, c, 0, x);
}

/* --- masking and padding ------------------------------------------------------------------------------ */

EMIT(triangle) {
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  const int64_t diagonal = op_int(c, 1, 0);
  const bool lower = is_named(c, "lower");
  /* The upper triangle is what the lower one of the diagonal before leaves. */
  const hlo_val_t below = part_lower(h, hlo_rank(h, x), hlo_dims(h, x), lower ? diagonal : diagonal - 1);
  const hlo_val_t zero = hlo_like(h, x, 0);
  const hlo_val_t kept = lower ? hlo_select(h, below, x, zero) : hlo_select(h, below, zero, x);
  op_ret(h, c, 0, kept);
}

EMIT(constant_pad_nd) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0);
  const hlo_val_t value = op_scalar(h, c, 2, op_result_dtype(c, 0));
  const int64_t *pad;
  const int count = op_ints(c, 1, &pad), rank = hlo_rank(h, x);
  if (hlo_failed(h)) return;
  int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0};
  /* Pairs from the last dimension on. */
  for (int i = 0; i < count / 2 && i < rank; i++) low[rank - 1 - i] = pad[2 * i], high[rank - 1 - i] = pad[2 * i + 1];
  const hlo_val_t padded = hlo_pad(h, x, value, low, high, NULL);
  op_ret(h, c, 0, padded);
}

EMIT(repeat) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0);
  const int64_t *times;
  const int rank = op_ints(c, 1, &times), skipped = rank - hlo_rank(h, x);
  if (hlo_failed(h) || skipped < 0) return (void)hlo_fail(h, "repeat: fewer repeats than dimensions");
  /* Each dimension n becomes (times, n); dimensions of size or times 1 need no second one. */
  int64_t dims[2 * TTPU_MAX_RANK];
  int map[TTPU_MAX_RANK], wide = 0;
  for (int i = 0; i < rank; i++) {
    if (i < skipped) {
      dims[wide++] = times[i];
      continue;
    }
    const int64_t n = hlo_dim(h, x, i - skipped);
    if (times[i] != 1) dims[wide++] = times[i];
    map[i - skipped] = wide;
    dims[wide++] = n;
  }
  if (wide > TTPU_MAX_RANK) return (void)hlo_fail_code(h, TTPU_UNIMPLEMENTED, "repeat of this many dimensions");
  const hlo_val_t spread = hlo_broadcast_in(h, x, wide, dims, map);
  const hlo_val_t flat = part_as_result(h, c, 0, spread);
  op_ret(h, c, 0, flat);
}

EMIT(narrow_copy) {
  const hlo_val_t x = op_tensor(h, c, 0);
  const int dim = op_dim(c, 1, hlo_rank(h, x));
  const int64_t given = op_int(c, 2, 0), start = given < 0 ? given + hlo_dim(h, x, dim) : given;
  const hlo_val_t part = hlo_slice_dim(h, x, dim, start, start + op_int(c, 3, 0), 1);
  op_ret(h, c, 0, part);
}

/* --- writing parts ------------------------------------------------------------------------------------ */

/* grad_in[..., w, ..., k] belongs to position w * step + k of |dim|. One padded, dilated copy an offset k, or a scatter
 * where the windows are long. */
enum { UNFOLD_PADS = 16 };

EMIT(unfold_backward) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t raw = op_tensor(h, c, 0);
  const hlo_val_t grad = hlo_convert(h, raw, map_wide(hlo_dtype(h, raw)));
  if (hlo_failed(h)) return;
  const int64_t *sizes;
  const int rank = op_ints(c, 1, &sizes), dim = op_dim(c, 2, rank);
  const int64_t size = op_int(c, 3, 0), step = op_int(c, 4, 1);
  if (rank == 0) {
    const hlo_val_t only = hlo_reshape(h, grad, 0, NULL);
    op_ret(h, c, 0, only);
    return;
  }
  const int64_t windows = hlo_dim(h, grad, dim), n = sizes[dim];
  const hlo_val_t zero = hlo_like(h, grad, 0);
  hlo_val_t sum;
  if (size <= UNFOLD_PADS) {
    sum = hlo_expand(h, zero, rank, sizes);
    int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0}, interior[TTPU_MAX_RANK] = {0};
    interior[dim] = step - 1;
    for (int64_t k = 0; k < size && windows > 0; k++) {
      const hlo_val_t column = hlo_slice_dim(h, grad, rank, k, k + 1, 1);
      const hlo_val_t flat = hlo_squeeze(h, column, rank);
      low[dim] = k, high[dim] = n - k - ((windows - 1) * step + 1);
      const hlo_val_t spread = hlo_pad(h, flat, zero, low, high, interior);
      sum = hlo_add(h, sum, spread);
    }
  } else {
    const int64_t grid[] = {windows, size, 1};
    const hlo_val_t window = hlo_iota(h, TTPU_I64, 3, grid, 0), offset = hlo_iota(h, TTPU_I64, 3, grid, 1);
    const hlo_val_t stride = hlo_const_int(h, TTPU_I64, step);
    const hlo_val_t start = hlo_mul(h, window, stride);
    const hlo_val_t at = hlo_add(h, start, offset);
    int window_dims[TTPU_MAX_RANK], count = 0;
    for (int i = 0; i < rank; i++) {
      if (i != dim) window_dims[count++] = i;
    }
    const hlo_scatter_t s = {.window_count = count, .window_dims = window_dims, .inserted_count = 1,
                             .inserted_dims = &dim, .map_count = 1, .scatter_map = &dim};
    const hlo_val_t base = hlo_expand(h, zero, rank, sizes);
    sum = hlo_scatter(h, "add", base, at, grad, &s);
  }
  op_ret(h, c, 0, sum);
}

/* Elements start, start + step, ... of |dim| taken from |src|: a dilated pad of |src| and of where it counts. */
static hlo_val_t replace_slice(hlo_t *h, hlo_val_t self, hlo_val_t src, int dim, int64_t start, int64_t step) {
  if (hlo_failed(h)) return 0;
  const int rank = hlo_rank(h, self);
  const int64_t n = hlo_dim(h, self, dim), m = hlo_dim(h, src, dim);
  if (hlo_numel(h, src) == 0) return self;
  if (step == 1) {
    hlo_val_t starts[TTPU_MAX_RANK];
    const hlo_val_t first = hlo_const_int(h, TTPU_I64, start), zero = hlo_const_int(h, TTPU_I64, 0);
    for (int i = 0; i < rank; i++) starts[i] = i == dim ? first : zero;
    return hlo_dynamic_update_slice(h, self, src, starts);
  }
  int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0}, interior[TTPU_MAX_RANK] = {0};
  low[dim] = start, interior[dim] = step - 1, high[dim] = n - start - ((m - 1) * step + 1);
  const hlo_val_t zero = hlo_like(h, src, 0), no = hlo_const(h, TTPU_BOOL, 0), yes = hlo_const(h, TTPU_BOOL, 1);
  const hlo_val_t all = hlo_expand_like(h, yes, src);
  const hlo_val_t spread = hlo_pad(h, src, zero, low, high, interior);
  const hlo_val_t mask = hlo_pad(h, all, no, low, high, interior);
  return hlo_select(h, mask, spread, self);
}

EMIT(slice_scatter) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t self = op_tensor(h, c, 0);
  const hlo_val_t src = op_tensor_as(h, c, 1, hlo_dtype(h, self));
  if (hlo_failed(h)) return;
  const int dim = op_dim(c, 2, hlo_rank(h, self));
  const int64_t n = hlo_dim(h, self, dim);
  int64_t start = op_int(c, 3, 0);
  start = start < 0 ? start + n : start;
  start = start < 0 ? 0 : start > n ? n : start;
  const hlo_val_t all = replace_slice(h, self, src, dim, start, op_int(c, 5, 1));
  op_ret(h, c, 0, all);
}

EMIT(select_scatter) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t self = op_tensor(h, c, 0);
  const hlo_val_t src = op_tensor_as(h, c, 1, hlo_dtype(h, self));
  if (hlo_failed(h)) return;
  const int dim = op_dim(c, 2, hlo_rank(h, self));
  const int64_t index = op_int(c, 3, 0);
  const hlo_val_t row = hlo_unsqueeze(h, src, dim);
  const hlo_val_t all = replace_slice(h, self, row, dim, index < 0 ? index + hlo_dim(h, self, dim) : index, 1);
  op_ret(h, c, 0, all);
}
