/* view_test.c: every plan, carried out on host arrays, must select the elements that sizes, strides and offset name. */
#include "graph/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tests/c/check.h"

enum { MAX_ELEMENTS = 4096 };

static uint64_t state = 88172645463325252u;
static int64_t below(int64_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (int64_t)(state % (uint64_t)n);
}

/* Memory positions the plan reaches, in view order without broadcast dims, compared with the view's own. */
static bool plan_selects(const ttpu_view_plan_t *p, int64_t numel, int rank, const int64_t *sizes, const int64_t *strides,
                         int64_t offset) {
  if (p->gather) return p->starts[0] == offset;
  int64_t factor_strides[TTPU_VIEW_MAX_FACTORS], stride = 1;
  for (int i = p->factor_count - 1; i >= 0; i--) {
    factor_strides[i] = stride;
    stride *= p->factors[i];
  }
  if (stride < numel) return false;
  int64_t index[TTPU_MAX_RANK] = {0};
  for (;;) {
    int64_t wanted = offset, reached = 0;
    for (int i = 0; i < rank; i++) wanted += index[i] * strides[i];
    for (int f = 0; f < p->factor_count; f++) reached += p->starts[f] * factor_strides[f];
    for (int d = 0; d < p->dim_count; d++) {
      const int64_t f = p->factor_of[d], at = index[p->view_dim[d]];
      if (at >= p->sizes[f]) return false;
      reached += at * p->steps[f] * factor_strides[f];
    }
    if (wanted != reached) return false;
    int i = rank - 1;
    while (i >= 0 && ++index[i] == sizes[i]) index[i--] = 0;
    if (i < 0) return true;
  }
}

/* A random base, then a random chain of the view operations users write, then its plan. */
static void random_views(void) {
  int gathers = 0, total = 20000;
  bool all = true;
  for (int round = 0; round < total; round++) {
    int64_t dims[6], strides[6];
    const int rank = (int)below(4) + 1;
    int64_t numel = 1;
    for (int i = 0; i < rank; i++) numel *= dims[i] = below(6) + 1;
    ttpu_view_contiguous_strides(rank, dims, strides);
    if (below(3) == 0 && rank > 1) { /* a permuted base, like channels_last */
      const int a = (int)below(rank), b = (int)below(rank);
      const int64_t d = dims[a], s = strides[a];
      dims[a] = dims[b], strides[a] = strides[b];
      dims[b] = d, strides[b] = s;
    }
    const ttpu_geometry_t base = {TTPU_F32, rank, dims, strides};
    int64_t sizes[8], steps[8], offset = 0;
    int n = rank;
    memcpy(sizes, dims, sizeof dims);
    memcpy(steps, strides, sizeof strides);
    for (int64_t k = below(4); k >= 0; k--) {
      const int d = (int)below(n);
      switch (below(5)) {
        case 0: { /* narrow */
          const int64_t start = below(sizes[d]);
          offset += start * steps[d];
          sizes[d] = below(sizes[d] - start) + 1;
          break;
        }
        case 1: { /* step */
          const int64_t step = below(3) + 1;
          sizes[d] = (sizes[d] + step - 1) / step;
          steps[d] *= step;
          break;
        }
        case 2: { /* transpose */
          const int e = (int)below(n);
          const int64_t s = sizes[d], t = steps[d];
          sizes[d] = sizes[e], steps[d] = steps[e];
          sizes[e] = s, steps[e] = t;
          break;
        }
        case 3: /* expand */
          if (sizes[d] == 1) sizes[d] = below(3) + 1, steps[d] = 0;
          break;
        default: /* unfold */
          if (n < 6 && sizes[d] > 1) {
            const int64_t window = below(sizes[d] - 1) + 1, step = below(2) + 1;
            sizes[n] = window;
            steps[n++] = steps[d];
            sizes[d] = (sizes[d] - window) / step + 1;
            steps[d] *= step;
          }
      }
    }
    ttpu_view_plan_t plan;
    ttpu_view_plan(&base, n, sizes, steps, offset, &plan);
    gathers += plan.gather;
    all &= plan_selects(&plan, numel, n, sizes, steps, offset);
    if (plan.whole) {
      int64_t covered = 1;
      for (int f = 0; f < plan.factor_count; f++) covered *= plan.sizes[f];
      all &= covered == numel;
    }
  }
  CHECK(all);
  CHECK(gathers < total / 2); /* the chain is the rule, the gather the exception */
}

static void common_views_need_no_gather(void) {
  const int64_t dims[] = {4, 5}, strides[] = {5, 1};
  const ttpu_geometry_t base = {TTPU_F32, 2, dims, strides};
  ttpu_view_plan_t p;
  ttpu_view_plan(&base, 2, (int64_t[]){5, 4}, (int64_t[]){1, 5}, 0, &p); /* x.t() */
  CHECK(!p.gather && p.whole);
  ttpu_view_plan(&base, 2, (int64_t[]){4, 3}, (int64_t[]){5, 2}, 0, &p); /* x[:, ::2] */
  CHECK(!p.gather && !p.whole && p.steps[1] == 2);
  ttpu_view_plan(&base, 1, (int64_t[]){4}, (int64_t[]){5}, 2, &p); /* x[:, 2] */
  CHECK(!p.gather && p.starts[1] == 2);
  ttpu_view_plan(&base, 1, (int64_t[]){20}, (int64_t[]){1}, 0, &p); /* x.view(-1) */
  CHECK(!p.gather && p.whole && p.factor_count == 1);
  ttpu_view_plan(&base, 2, (int64_t[]){3, 3}, (int64_t[]){1, 1}, 0, &p); /* overlapping windows */
  CHECK(p.gather);
  CHECK(ttpu_view_is_dense(2, (int64_t[]){5, 4}, (int64_t[]){1, 5}));
  CHECK(!ttpu_view_is_dense(2, (int64_t[]){4, 3}, (int64_t[]){5, 1}));
  CHECK(ttpu_view_is_dense(2, (int64_t[]){0, 3}, (int64_t[]){7, 9}));
}

static void memory_order(void) {
  const int64_t nhwc_dims[] = {2, 3, 4, 5}, nhwc_strides[] = {60, 1, 15, 3};
  const ttpu_geometry_t channels_last = {TTPU_F32, 4, nhwc_dims, nhwc_strides};
  int64_t order[4];
  CHECK(ttpu_view_memory_order(&channels_last, order));
  CHECK(order[0] == 0 && order[1] == 2 && order[2] == 3 && order[3] == 1);
  int64_t plain[4];
  ttpu_view_contiguous_strides(4, nhwc_dims, plain);
  CHECK(!ttpu_view_memory_order(&(ttpu_geometry_t){TTPU_F32, 4, nhwc_dims, plain}, order));
}

int main(void) {
  common_views_need_no_gather();
  memory_order();
  random_views();
  return check_end();
}
