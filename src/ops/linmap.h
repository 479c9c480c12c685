/* linmap.h: a sparse linear map along one dimension, known when the program is written: row o of the result is the sum
 * over k of weight[o][k] * x[index[o][k]]. Interpolation, padding and adaptive averaging are such maps, one a spatial
 * dimension, and their gradients are the transposed maps. The cheapest form is chosen by the map's shape: slices where
 * indices run evenly, else gathers of a few taps, else a matrix product.
 */
#ifndef TTPU_OPS_LINMAP_H_
#define TTPU_OPS_LINMAP_H_

#include "hlo/hlo.h"

typedef struct {
  int64_t in, out, taps;
  int64_t *index; /* [out][taps] */
  double *weight; /* [out][taps]; NULL: one tap of weight 1, any dtype */
} ttpu_linmap_t;

/* All indices and weights 0. NULL when memory is out: the functions below then latch that failure. */
ttpu_linmap_t *ttpu_linmap_create(int64_t in, int64_t out, int64_t taps, bool weighted);
void ttpu_linmap_free(ttpu_linmap_t *map);
/* Maps dimension |dim| of |x| (size in) to size out. Weighted maps want a float or complex operand. */
hlo_val_t ttpu_linmap_apply(hlo_t *h, const ttpu_linmap_t *map, hlo_val_t x, int dim);
/* The transposed map: dimension |dim| of |y| (size out) to size in. */
hlo_val_t ttpu_linmap_apply_back(hlo_t *h, const ttpu_linmap_t *map, hlo_val_t y, int dim);
/* x[index[o]] along |dim|, |count| indices. */
hlo_val_t ttpu_linmap_select(hlo_t *h, hlo_val_t x, int dim, int64_t count, const int64_t *index);

#endif /* TTPU_OPS_LINMAP_H_ */
