/* fft.c: Fourier transforms. StableHLO transforms up to three innermost dimensions at a time, and scales only its inverse
 * forms, by 1/n; PyTorch's normalisation (0 none, 1 by 1/sqrt(n), 2 by 1/n) is one multiplication at the end.
 */
#include <math.h>

#include "ops/part.h"

enum { FFT_AT_ONCE = 3 };

static int read_dims(const op_call_t *c, int rank, int *out) {
  const int64_t *listed;
  const int count = op_ints(c, 1, &listed);
  for (int i = 0; i < count; i++) out[i] = (int)(listed[i] < 0 ? listed[i] + rank : listed[i]);
  return count;
}

/* |x| with dimensions |dims| innermost, in that order; |back| undoes it. */
static hlo_val_t move_inside(hlo_t *h, hlo_val_t x, int count, const int *dims, int *back) {
  const int rank = hlo_rank(h, x);
  int order[TTPU_MAX_RANK], next = 0;
  for (int i = 0; i < rank; i++) {
    bool moved = false;
    for (int k = 0; k < count; k++) moved |= dims[k] == i;
    if (!moved) order[next++] = i;
  }
  for (int k = 0; k < count; k++) order[next++] = dims[k];
  for (int i = 0; i < rank; i++) back[order[i]] = i;
  return hlo_transpose(h, x, order);
}

/* One transform over at most three dims. |lengths| are those of the result for IRFFT, else of the operand. */
static hlo_val_t transform(hlo_t *h, hlo_val_t x, const char *type, int count, const int *dims, const int64_t *lengths) {
  if (hlo_failed(h)) return 0;
  int back[TTPU_MAX_RANK];
  const hlo_val_t inside = move_inside(h, x, count, dims, back);
  const hlo_val_t done = hlo_fft(h, inside, type, count, lengths);
  return hlo_transpose(h, done, back);
}

/* Complex to complex over any number of dims. */
static hlo_val_t transform_all(hlo_t *h, hlo_val_t x, const char *type, int count, const int *dims) {
  for (int at = 0; at < count; at += FFT_AT_ONCE) {
    const int some = count - at < FFT_AT_ONCE ? count - at : FFT_AT_ONCE;
    int64_t lengths[FFT_AT_ONCE];
    for (int k = 0; k < some; k++) lengths[k] = hlo_failed(h) ? 0 : hlo_dim(h, x, dims[at + k]);
    x = transform(h, x, type, some, dims + at, lengths);
  }
  return x;
}

/* |done| is what StableHLO has divided by already. */
static hlo_val_t normalise(hlo_t *h, hlo_val_t x, int64_t normalization, double n, double done) {
  const double scale = done / (normalization == 1 ? sqrt(n) : normalization == 2 ? n : 1);
  if (hlo_failed(h) || scale == 1) return x;
  if (!ttpu_dtype_is_complex(hlo_dtype(h, x))) return map_mul_k(h, x, scale);
  const hlo_val_t factor = hlo_const_complex(h, hlo_dtype(h, x), scale, 0);
  return hlo_mul(h, x, factor);
}

EMIT(fft_c2c) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  int dims[TTPU_MAX_RANK];
  const int count = read_dims(c, hlo_rank(h, x), dims);
  double n = 1;
  for (int k = 0; k < count; k++) n *= (double)hlo_dim(h, x, dims[k]);
  const bool forward = op_bool(c, 3, true);
  const hlo_val_t raw = transform_all(h, x, forward ? "FFT" : "IFFT", count, dims);
  const hlo_val_t y = normalise(h, raw, op_int(c, 2, 0), n, forward ? 1 : n);
  op_ret(h, c, 0, y);
}

EMIT(fft_r2c) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  int dims[TTPU_MAX_RANK];
  const int count = read_dims(c, hlo_rank(h, x), dims);
  double n = 1;
  for (int k = 0; k < count; k++) n *= (double)hlo_dim(h, x, dims[k]);
  hlo_val_t y;
  if (op_bool(c, 3, true) && count > 0) {
    const int64_t length = hlo_dim(h, x, dims[count - 1]);
    const hlo_val_t half = transform(h, x, "RFFT", 1, dims + count - 1, &length);
    y = transform_all(h, half, "FFT", count - 1, dims);
  } else {
    const hlo_val_t wide = hlo_convert(h, x, op_result_dtype(c, 0));
    y = transform_all(h, wide, "FFT", count, dims);
  }
  y = normalise(h, y, op_int(c, 2, 0), n, 1);
  op_ret(h, c, 0, y);
}

EMIT(fft_c2r) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t x = op_tensor(h, c, 0);
  if (hlo_failed(h)) return;
  int dims[TTPU_MAX_RANK];
  const int count = read_dims(c, hlo_rank(h, x), dims);
  const int64_t length = op_int(c, 3, 1), half = length / 2 + 1;
  double n = (double)length;
  for (int k = 0; k + 1 < count; k++) n *= (double)hlo_dim(h, x, dims[k]);
  const int last = dims[count - 1];
  const hlo_val_t used = hlo_dim(h, x, last) > half ? hlo_slice_dim(h, x, last, 0, half, 1) : x;
  const hlo_val_t outer = transform_all(h, used, "IFFT", count - 1, dims);
  const hlo_val_t real = transform(h, outer, "IRFFT", 1, &last, &length);
  const hlo_val_t y = normalise(h, real, op_int(c, 2, 0), n, n);
  op_ret(h, c, 0, y);
}
