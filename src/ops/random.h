/* random.h: uniform and normal numbers from a call's state, shared by random.c and random_reject.c.
 *
 * |state| is ui64[2] (seed, offset). Streams of one call differ in the seed word, which is the key of the generator, so
 * they are independent whatever the sizes.
 */
#ifndef TTPU_OPS_RANDOM_H_
#define TTPU_OPS_RANDOM_H_

#include "ops/part.h"

/* Random words, u32 or u64, each a function of the state and its position in row-major order. */
hlo_val_t random_bits(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims);
/* The |k|-th independent stream of a call: |k| is a C number, or a rank-0 u64 value. */
hlo_val_t random_stream(hlo_t *h, hlo_val_t state, uint64_t k);
hlo_val_t random_stream_at(hlo_t *h, hlo_val_t state, hlo_val_t k);
/* F32 or F64 numbers. half_open: [0, 1), all multiples of 2^-24 or 2^-53. open: (0, 1), symmetric about 1/2, so that
 * logarithms are finite. normal: mean 0, variance 1. */
hlo_val_t random_half_open(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims);
hlo_val_t random_open(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims);
hlo_val_t random_normal(hlo_t *h, hlo_val_t state, ttpu_dtype_e t, int rank, const int64_t *dims);

#endif /* TTPU_OPS_RANDOM_H_ */
