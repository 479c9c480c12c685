/* view.c: see view.h. */
#include "graph/view.h"

#include <stddef.h>
#include <string.h>

void ttpu_view_contiguous_strides(int rank, const int64_t *dims, int64_t *out) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    out[i] = stride;
    stride *= dims[i] > 1 ? dims[i] : 1;
  }
}

bool ttpu_view_is_base(const ttpu_geometry_t *base, int rank, const int64_t *sizes, const int64_t *strides,
                       int64_t offset) {
  if (offset || rank != base->rank) return false;
  for (int i = 0; i < rank; i++)
    if (sizes[i] != base->dims[i] || (strides[i] != base->strides[i] && sizes[i] != 1)) return false;
  return true;
}

/* Dims larger than 1, by falling stride (stable). Returns their count. */
static int sort_dims(int rank, const int64_t *sizes, const int64_t *strides, int64_t *out) {
  int n = 0;
  for (int i = 0; i < rank; i++) {
    if (sizes[i] == 1) continue;
    int at = n++;
    for (; at > 0 && strides[out[at - 1]] < strides[i]; at--) out[at] = out[at - 1];
    out[at] = i;
  }
  return n;
}

bool ttpu_view_is_dense(int rank, const int64_t *sizes, const int64_t *strides) {
  int64_t order[TTPU_MAX_RANK];
  const int n = sort_dims(rank, sizes, strides, order);
  int64_t expected = 1;
  for (int i = n - 1; i >= 0; i--) {
    if (sizes[order[i]] == 0) return true;
    if (strides[order[i]] != expected) return false;
    expected *= sizes[order[i]];
  }
  return true;
}

bool ttpu_view_memory_order(const ttpu_geometry_t *base, int64_t *out) {
  bool moved = false;
  int n = 0;
  for (int i = 0; i < base->rank; i++) {
    int at = n++;
    for (; at > 0 && base->strides[out[at - 1]] < base->strides[i] && base->dims[i] != 1 && base->dims[out[at - 1]] != 1;
         at--) {
      out[at] = out[at - 1];
      moved = true;
    }
    out[at] = i;
  }
  if (!moved) return false;
  /* size-1 dims carry no order of their own: sort the others properly, then append these */
  n = sort_dims(base->rank, base->dims, base->strides, out);
  for (int i = 0; i < base->rank; i++)
    if (base->dims[i] == 1) out[n++] = i;
  return true;
}

/* --- the chain ------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t numel, offset;
  int count; /* view dims by falling stride */
  int64_t sizes[TTPU_MAX_RANK], strides[TTPU_MAX_RANK];
} wanted_t;

/* Tries factors with the given falling memory strides (the last is 1). Each view dim must match one factor: equal stride,
 * or, with |stepped|, a multiple of it. */
static bool try_factors(const wanted_t *w, int count, const int64_t *strides, bool stepped, bool padded,
                        ttpu_view_plan_t *p) {
  if (count > TTPU_VIEW_MAX_FACTORS) return false;
  for (int i = 1; i < count; i++)
    if (strides[i - 1] % strides[i]) return false;
  if (w->numel % strides[0] && !padded) return false;
  p->factor_count = count;
  int64_t rest = w->offset;
  int dim = 0;
  p->whole = true;
  for (int i = 0; i < count; i++) {
    p->factors[i] = i ? strides[i - 1] / strides[i] : (w->numel + strides[0] - 1) / strides[0];
    p->starts[i] = rest / strides[i];
    rest %= strides[i];
    p->sizes[i] = p->steps[i] = 1;
    const int64_t above = i ? strides[i - 1] : INT64_MAX;
    if (dim < w->count && w->strides[dim] >= strides[i] && w->strides[dim] < above) {
      if (w->strides[dim] % strides[i] || (!stepped && w->strides[dim] != strides[i])) return false;
      p->steps[i] = w->strides[dim] / strides[i];
      p->sizes[i] = w->sizes[dim];
      p->factor_of[dim++] = i; /* in order of stride; the caller maps it back to view order */
    }
    if (p->starts[i] + (p->sizes[i] - 1) * p->steps[i] + 1 > p->factors[i]) return false;
    if (p->sizes[i] != p->factors[i]) p->whole = false;
  }
  if (w->numel % strides[0]) p->whole = false;
  return dim == w->count;
}

static int add_stride(int64_t *list, int count, int64_t stride) {
  int at = 0;
  while (at < count && list[at] > stride) at++;
  if (at < count && list[at] == stride) return count;
  memmove(list + at + 1, list + at, (size_t)(count - at) * sizeof *list);
  list[at] = stride;
  return count + 1;
}

void ttpu_view_plan(const ttpu_geometry_t *base, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                    ttpu_view_plan_t *p) {
  memset(p, 0, offsetof(ttpu_view_plan_t, factors));
  /* what is neither broadcast nor of size 1 */
  int place[TTPU_MAX_RANK];
  int64_t kept[TTPU_MAX_RANK], order[TTPU_MAX_RANK], kept_sizes[TTPU_MAX_RANK], kept_strides[TTPU_MAX_RANK];
  int n = 0;
  for (int i = 0; i < rank; i++)
    if (sizes[i] != 1 && strides[i] != 0) {
      kept[n] = i;
      kept_sizes[n] = sizes[i];
      kept_strides[n++] = strides[i];
    }
  wanted_t w = {.numel = ttpu_dims_numel(base->rank, base->dims), .offset = offset};
  w.count = sort_dims(n, kept_sizes, kept_strides, order);
  for (int i = 0; i < w.count; i++) {
    w.sizes[i] = kept_sizes[order[i]];
    w.strides[i] = kept_strides[order[i]];
    place[order[i]] = i;
  }
  p->dim_count = n;
  memcpy(p->view_dim, kept, (size_t)n * sizeof *kept);

  int64_t own[TTPU_MAX_RANK + 1], all[2 * TTPU_MAX_RANK + 1], dims[TTPU_MAX_RANK + 1];
  int own_count = add_stride(own, 0, 1), all_count, dims_count = add_stride(dims, 0, 1);
  bool distinct = true;
  for (int i = 0; i < w.count; i++) {
    if (i && w.strides[i] == w.strides[i - 1]) distinct = false;
    own_count = add_stride(own, own_count, w.strides[i]);
  }
  for (int i = 0; i < base->rank; i++)
    if (base->dims[i] != 1) dims_count = add_stride(dims, dims_count, base->strides[i]);
  memcpy(all, own, sizeof own);
  all_count = own_count;
  for (int i = 0; i < dims_count; i++) all_count = add_stride(all, all_count, dims[i]);

  if (distinct && (try_factors(&w, own_count, own, false, false, p) || try_factors(&w, all_count, all, false, false, p) ||
                   try_factors(&w, dims_count, dims, true, false, p) || try_factors(&w, own_count, own, false, true, p))) {
    int64_t by_stride[TTPU_MAX_RANK];
    memcpy(by_stride, p->factor_of, (size_t)n * sizeof *by_stride);
    for (int i = 0; i < n; i++) p->factor_of[i] = by_stride[place[i]];
    return;
  }
  p->gather = true;
  p->whole = false;
  p->factor_count = 1;
  p->factors[0] = w.numel;
  p->starts[0] = offset;
}
