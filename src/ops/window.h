/* window.h: sliding windows as taps. Tap t of a window reads one strided slice of the padded operand, so pooling,
 * its gradients and im2col become sums and maxima of slices, which fuse into one loop and need no scatter.
 * The spatial dimensions are the last |rank| ones of an operand.
 */
#ifndef TTPU_OPS_WINDOW_H_
#define TTPU_OPS_WINDOW_H_

#include "hlo/hlo.h"

enum { WINDOW_MAX_RANK = 3 };

typedef struct {
  int rank;
  int64_t in[WINDOW_MAX_RANK], out[WINDOW_MAX_RANK], size[WINDOW_MAX_RANK], stride[WINDOW_MAX_RANK],
      pad[WINDOW_MAX_RANK], dilation[WINDOW_MAX_RANK];
} ttpu_window_t;

int64_t ttpu_window_taps(const ttpu_window_t *w);   /* product of size */
int64_t ttpu_window_inputs(const ttpu_window_t *w); /* product of in */
int64_t ttpu_window_outputs(const ttpu_window_t *w);

/* |x| padded with |value| so that every tap lies inside. */
hlo_val_t ttpu_window_pad(hlo_t *h, const ttpu_window_t *w, hlo_val_t x, hlo_val_t value);
/* What tap |t| of each window sees: |padded| with spatial dims |out|. */
hlo_val_t ttpu_window_tap(hlo_t *h, const ttpu_window_t *w, hlo_val_t padded, int64_t t);
/* The adjoint: |y| of spatial dims |out| put where tap |t| reads it, zero elsewhere, spatial dims |in|. */
hlo_val_t ttpu_window_untap(hlo_t *h, const ttpu_window_t *w, hlo_val_t y, int64_t t);
/* Type for positions in the input plane, and the position each window's tap |t| reads: dims |out|, at least
 * ttpu_window_nowhere where it is padding. */
ttpu_dtype_e ttpu_window_index_type(const ttpu_window_t *w);
int64_t ttpu_window_nowhere(const ttpu_window_t *w);
hlo_val_t ttpu_window_index(hlo_t *h, const ttpu_window_t *w, int64_t t);
/* Sum over each window; and its adjoint, spatial dims |in|. Dilation must be 1 for the adjoint. */
hlo_val_t ttpu_window_sum(hlo_t *h, const ttpu_window_t *w, hlo_val_t x);
hlo_val_t ttpu_window_sum_back(hlo_t *h, const ttpu_window_t *w, hlo_val_t y);

#endif /* TTPU_OPS_WINDOW_H_ */
