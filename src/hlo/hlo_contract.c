/* hlo_contract.c: dot products, convolutions, Fourier transforms, factorisations and random bits. */
#include <stdio.h>

#include "hlo/hlo_text.h"

static void attr_precision(hlo_t *h) {
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST"};
  const char *name = names[h->precision < 0 || h->precision > 2 ? 2 : h->precision];
  hlo_attr_begin(h, "precision_config");
  for (int i = 0; i < 2; i++) {
    hlo_puts(&h->attributes, i ? ", #stablehlo<precision " : "[#stablehlo<precision ");
    hlo_puts(&h->attributes, name);
    hlo_puts(&h->attributes, ">");
  }
  hlo_puts(&h->attributes, "]");
}

/* --- dot ------------------------------------------------------------------------------------------------ */

static void put_dims(hlo_t *h, bool *is_first, const char *name, int count, const int *dims) {
  if (!count) return;
  ttpu_str_t *s = &h->attributes;
  if (!*is_first) hlo_puts(s, ", ");
  *is_first = false;
  hlo_puts(s, name);
  hlo_puts(s, " = [");
  hlo_put_list_int(s, count, dims);
  hlo_puts(s, "]");
}

/* Marks |dims| in |taken|; false when one is out of range or named twice. */
static bool take_dims(uint64_t *taken, int rank, int count, const int *dims) {
  for (int i = 0; i < count; i++) {
    if (dims[i] < 0 || dims[i] >= rank || *taken >> dims[i] & 1) return false;
    *taken |= 1ull << dims[i];
  }
  return true;
}

hlo_val_t hlo_dot_general(hlo_t *h, hlo_val_t a, hlo_val_t b, int batch_count, const int *a_batch, const int *b_batch,
                          int contract_count, const int *a_contract, const int *b_contract, ttpu_dtype_e out) {
  if (h->failed) return 0;
  const hlo_value_t *x = hlo_value(h, a), *y = hlo_value(h, b);
  uint64_t x_taken = 0, y_taken = 0;
  bool fits = x->dtype && x->dtype == y->dtype && take_dims(&x_taken, x->rank, batch_count, a_batch) &&
              take_dims(&y_taken, y->rank, batch_count, b_batch) &&
              take_dims(&x_taken, x->rank, contract_count, a_contract) &&
              take_dims(&y_taken, y->rank, contract_count, b_contract);
  for (int i = 0; i < batch_count && fits; i++) fits = x->dims[a_batch[i]] == y->dims[b_batch[i]];
  for (int i = 0; i < contract_count && fits; i++) fits = x->dims[a_contract[i]] == y->dims[b_contract[i]];
  if (!fits) return hlo_fail(h, "dot_general of %s and %s", hlo_describe(h, a).text, hlo_describe(h, b).text);
  int64_t dims[2 * TTPU_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < batch_count; i++) dims[rank++] = x->dims[a_batch[i]];
  for (int i = 0; i < x->rank; i++)
    if (!(x_taken >> i & 1)) dims[rank++] = x->dims[i];
  for (int i = 0; i < y->rank; i++)
    if (!(y_taken >> i & 1)) dims[rank++] = y->dims[i];

  hlo_attr_begin(h, "dot_dimension_numbers");
  hlo_puts(&h->attributes, "#stablehlo.dot<");
  bool is_first = true;
  put_dims(h, &is_first, "lhs_batching_dimensions", batch_count, a_batch);
  put_dims(h, &is_first, "rhs_batching_dimensions", batch_count, b_batch);
  put_dims(h, &is_first, "lhs_contracting_dimensions", contract_count, a_contract);
  put_dims(h, &is_first, "rhs_contracting_dimensions", contract_count, b_contract);
  hlo_puts(&h->attributes, ">");
  attr_precision(h);
  const hlo_val_t operands[] = {a, b};
  return hlo_line(h, "stablehlo", "dot_general", 2, operands, out, rank, dims);
}

hlo_val_t hlo_matmul(hlo_t *h, hlo_val_t a, hlo_val_t b) {
  if (h->failed) return 0;
  const int rank = hlo_rank(h, a);
  if (rank < 2 || hlo_rank(h, b) != rank)
    return hlo_fail(h, "matmul of %s and %s", hlo_describe(h, a).text, hlo_describe(h, b).text);
  int batch[TTPU_MAX_RANK];
  for (int i = 0; i < rank - 2; i++) batch[i] = i;
  const int last = rank - 1, before = rank - 2;
  return hlo_dot_general(h, a, b, rank - 2, batch, batch, 1, &last, &before, hlo_dtype(h, a));
}

/* --- convolution ---------------------------------------------------------------------------------------- */

static void put_conv_side(ttpu_str_t *s, const char *letters, int spatial) {
  const char pair[] = {'[', letters[0], ',', ' ', letters[1], 0};
  hlo_puts(s, pair);
  for (int i = 0; i < spatial; i++) {
    hlo_puts(s, ", ");
    hlo_put_int(s, i);
  }
  hlo_puts(s, "]");
}

static int64_t at(const int64_t *values, int i, int64_t absent) { return values ? values[i] : absent; }

hlo_val_t hlo_convolution(hlo_t *h, hlo_val_t lhs, hlo_val_t rhs, const hlo_conv_t *conv) {
  if (h->failed) return 0;
  const hlo_value_t *x = hlo_value(h, lhs), *w = hlo_value(h, rhs);
  const int n = conv->spatial, rank = n + 2;
  const int64_t groups = conv->feature_groups ? conv->feature_groups : 1;
  const int64_t batch_groups = conv->batch_groups ? conv->batch_groups : 1;
  if (x->rank != rank || w->rank != rank || x->dtype != w->dtype || !x->dtype || n < 0)
    return hlo_fail(h, "convolution of %d spatial dimensions: %s and %s", n, hlo_describe(h, lhs).text,
                    hlo_describe(h, rhs).text);
  int64_t dims[TTPU_MAX_RANK];
  if (conv->dimension_numbers) {
    if (!conv->result_dims) return hlo_fail(h, "convolution: dimension numbers without result sizes");
    memcpy(dims, conv->result_dims, (size_t)rank * sizeof *dims);
  } else {
    if (x->dims[1] != w->dims[1] * groups || w->dims[0] % groups || x->dims[0] % batch_groups)
      return hlo_fail(h, "convolution in %lld groups: %s and %s", (long long)groups, hlo_describe(h, lhs).text,
                      hlo_describe(h, rhs).text);
    dims[0] = x->dims[0] / batch_groups;
    dims[1] = w->dims[0];
    for (int i = 0; i < n; i++)
      dims[2 + i] = hlo_window_size(x->dims[2 + i], at(conv->lhs_dilation, i, 1), at(conv->pad_low, i, 0),
                                    at(conv->pad_high, i, 0), w->dims[2 + i], at(conv->rhs_dilation, i, 1),
                                    at(conv->stride, i, 1));
  }
  ttpu_str_t *s = &h->attributes;
  hlo_attr_begin(h, "dimension_numbers");
  hlo_puts(s, "#stablehlo.conv<");
  if (conv->dimension_numbers) {
    hlo_puts(s, conv->dimension_numbers);
  } else {
    put_conv_side(s, "bf", n);
    hlo_puts(s, "x");
    put_conv_side(s, "oi", n);
    hlo_puts(s, "->");
    put_conv_side(s, "bf", n);
  }
  hlo_puts(s, ">");
  hlo_attr_repeat(h, "window_strides", n, conv->stride, 1);
  hlo_attr_padding(h, n, conv->pad_low, conv->pad_high);
  hlo_attr_repeat(h, "lhs_dilation", n, conv->lhs_dilation, 1);
  hlo_attr_repeat(h, "rhs_dilation", n, conv->rhs_dilation, 1);
  hlo_attr_bools(h, "window_reversal", n, conv->reverse_kernel);
  hlo_attr_int(h, "feature_group_count", groups);
  hlo_attr_int(h, "batch_group_count", batch_groups);
  attr_precision(h);
  const hlo_val_t operands[] = {lhs, rhs};
  return hlo_line(h, "stablehlo", "convolution", 2, operands, x->dtype, rank, dims);
}

/* --- transforms and factorisations ---------------------------------------------------------------------- */

hlo_val_t hlo_fft(hlo_t *h, hlo_val_t x, const char *type, int count, const int64_t *lengths) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  const bool is_rfft = !strcmp(type, "RFFT"), is_irfft = !strcmp(type, "IRFFT");
  const ttpu_dtype_e dtype = value->dtype;
  bool fits = count >= 1 && count <= 3 && count <= value->rank &&
              (is_rfft ? dtype == TTPU_F32 || dtype == TTPU_F64 : ttpu_dtype_is_complex(dtype));
  int64_t dims[TTPU_MAX_RANK];
  memcpy(dims, value->dims, (size_t)value->rank * sizeof *dims);
  for (int i = 0; i < count && fits; i++) {
    const int64_t size = dims[value->rank - count + i];
    fits = size == (is_irfft && i == count - 1 ? lengths[i] / 2 + 1 : lengths[i]);
  }
  if (!fits)
    return hlo_fail(h, "%s of %s with lengths %s", type, hlo_describe(h, x).text, hlo_describe_dims(count, lengths).text);
  if (is_rfft) dims[value->rank - 1] = lengths[count - 1] / 2 + 1;
  if (is_irfft) dims[value->rank - 1] = lengths[count - 1];
  hlo_attr_begin(h, "fft_type");
  hlo_puts(&h->attributes, "#stablehlo<fft_type ");
  hlo_puts(&h->attributes, type);
  hlo_puts(&h->attributes, ">");
  hlo_attr_array(h, "fft_length", count, lengths);
  const ttpu_dtype_e out = is_rfft ? ttpu_dtype_complex(dtype) : is_irfft ? ttpu_dtype_real(dtype) : dtype;
  return hlo_line(h, "stablehlo", "fft", 1, &x, out, value->rank, dims);
}

hlo_val_t hlo_cholesky(hlo_t *h, hlo_val_t x, bool lower) {
  if (h->failed) return 0;
  const hlo_value_t *value = hlo_value(h, x);
  if (value->rank < 2 || hlo_dim(h, x, -1) != hlo_dim(h, x, -2))
    return hlo_fail(h, "cholesky of %s", hlo_describe(h, x).text);
  hlo_attr_bool(h, "lower", lower);
  return hlo_line(h, "stablehlo", "cholesky", 1, &x, value->dtype, value->rank, value->dims);
}

hlo_val_t hlo_triangular_solve(hlo_t *h, hlo_val_t a, hlo_val_t b, bool left, bool lower, bool unit,
                               const char *transpose_a) {
  if (h->failed) return 0;
  const hlo_value_t *x = hlo_value(h, a), *y = hlo_value(h, b);
  bool fits = x->rank >= 2 && x->rank == y->rank && x->dtype == y->dtype && hlo_dim(h, a, -1) == hlo_dim(h, a, -2) &&
              hlo_dim(h, b, left ? -2 : -1) == hlo_dim(h, a, -1);
  for (int i = 0; i < x->rank - 2 && fits; i++) fits = x->dims[i] == y->dims[i];
  if (!fits) return hlo_fail(h, "triangular_solve of %s and %s", hlo_describe(h, a).text, hlo_describe(h, b).text);
  hlo_attr_bool(h, "left_side", left);
  hlo_attr_bool(h, "lower", lower);
  hlo_attr_bool(h, "unit_diagonal", unit);
  hlo_attr_begin(h, "transpose_a");
  hlo_puts(&h->attributes, "#stablehlo<transpose ");
  hlo_puts(&h->attributes, transpose_a ? transpose_a : "NO_TRANSPOSE");
  hlo_puts(&h->attributes, ">");
  const hlo_val_t operands[] = {a, b};
  return hlo_line(h, "stablehlo", "triangular_solve", 2, operands, y->dtype, y->rank, y->dims);
}

/* --- other ---------------------------------------------------------------------------------------------- */

hlo_val_t hlo_random_bits(hlo_t *h, hlo_val_t state, ttpu_dtype_e dtype, int rank, const int64_t *dims) {
  if (h->failed) return 0;
  if (hlo_dtype(h, state) != TTPU_U64 || hlo_rank(h, state) != 1 || hlo_dim(h, state, 0) != 2 ||
      (dtype != TTPU_U32 && dtype != TTPU_U64))
    return hlo_fail(h, "random bits of dtype %s from the state %s", ttpu_dtype_text(dtype), hlo_describe(h, state).text);
  const hlo_val_t first = hlo_open(h, "stablehlo", "rng_bit_generator", 1, &state, 2);
  if (!first) return 0;
  const int64_t state_dims[] = {2};
  hlo_set_type(h, first, TTPU_U64, 1, state_dims);
  hlo_set_type(h, first + 1, dtype, rank, dims);
  hlo_attr_text(h, "rng_algorithm", "#stablehlo<rng_algorithm PHILOX>");
  hlo_close(h, first, 1, &state, 2);
  return h->failed ? 0 : first + 1;
}

void hlo_top_k(hlo_t *h, hlo_val_t x, int64_t k, hlo_val_t *values, hlo_val_t *indices) {
  *values = *indices = 0;
  if (h->failed) return;
  const int rank = hlo_rank(h, x);
  if (!rank || k < 0 || k > hlo_dim(h, x, -1)) {
    hlo_fail(h, "the first %lld of %s", (long long)k, hlo_describe(h, x).text);
    return;
  }
  const hlo_val_t first = hlo_open(h, "chlo", "top_k", 1, &x, 2);
  if (!first) return;
  int64_t dims[TTPU_MAX_RANK];
  memcpy(dims, hlo_dims(h, x), (size_t)rank * sizeof *dims);
  dims[rank - 1] = k;
  hlo_set_type(h, first, hlo_dtype(h, x), rank, dims);
  hlo_set_type(h, first + 1, TTPU_I32, rank, dims);
  hlo_attr_int(h, "k", k);
  hlo_close(h, first, 1, &x, 2);
  if (h->failed) return;
  *values = first;
  *indices = first + 1;
}
