/* hlo.h: StableHLO as text, from small primitives. Runs only on a cache miss.
 *
 * A module is written in order; each primitive infers its result type, writes one line and returns the value's
 * number. The first failure (bad types, no memory) is latched: from then on every primitive returns 0 and does
 * nothing, and hlo_finish returns the failure. So lowerings carry no error plumbing.
 * Text must not depend on the C compiler: at most one emitting call in an argument list.
 * Names are short on purpose (hlo_add, not ttpu_hlo_emit_add): lowerings are formulas.
 * One thread at a time.
 */
#ifndef TTPU_HLO_HLO_H_
#define TTPU_HLO_HLO_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/dtype.h"

typedef struct hlo hlo_t;
typedef int32_t hlo_val_t; /* an SSA value of the module; 0 is none */

/* --- module ------------------------------------------------------------------------------------------- */

hlo_t *hlo_create(void); /* NULL when memory is out */
void hlo_free(hlo_t *h);
/* Adds a parameter of the main function. |attributes| is StableHLO text such as "jax.buffer_donor = true", or NULL. */
hlo_val_t hlo_parameter(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, const char *attributes);
/* Writes the return and gives the whole module's text, owned by |h|. */
TTPU_MUST_USE ttpu_status_t *hlo_finish(hlo_t *h, int count, const hlo_val_t *results, const char **out_text,
                                        size_t *out_size);
/* Latches a failure, INVALID_ARGUMENT unless |code| says otherwise; keeps the first one. Always returns 0. */
hlo_val_t hlo_fail(hlo_t *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
hlo_val_t hlo_fail_code(hlo_t *h, ttpu_code_e code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool hlo_failed(const hlo_t *h);

/* Precision of dot and convolution: 0 default, 1 high, 2 highest. Part of the emitted text. */
void hlo_set_precision(hlo_t *h, int precision);

/* --- types -------------------------------------------------------------------------------------------- */

ttpu_dtype_e hlo_dtype(const hlo_t *h, hlo_val_t v);
int hlo_rank(const hlo_t *h, hlo_val_t v);
int64_t hlo_dim(const hlo_t *h, hlo_val_t v, int i); /* negative |i| counts from the end */
const int64_t *hlo_dims(const hlo_t *h, hlo_val_t v);
int64_t hlo_numel(const hlo_t *h, hlo_val_t v);

/* --- constants ---------------------------------------------------------------------------------------- */

hlo_val_t hlo_const(hlo_t *h, ttpu_dtype_e dtype, double value);       /* rank 0; any dtype; inf and nan are fine */
hlo_val_t hlo_const_int(hlo_t *h, ttpu_dtype_e dtype, int64_t value);  /* rank 0, exact; any dtype (u64: bit pattern) */
hlo_val_t hlo_const_complex(hlo_t *h, ttpu_dtype_e dtype, double re, double im);
hlo_val_t hlo_full(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, double value);
hlo_val_t hlo_full_like(hlo_t *h, hlo_val_t like, double value);
hlo_val_t hlo_const_ints(hlo_t *h, ttpu_dtype_e dtype, int64_t count, const int64_t *values);     /* rank 1 */
hlo_val_t hlo_const_doubles(hlo_t *h, ttpu_dtype_e dtype, int64_t count, const double *values);   /* rank 1 */
hlo_val_t hlo_iota(hlo_t *h, ttpu_dtype_e dtype, int rank, const int64_t *dims, int dim);
hlo_val_t hlo_iota_like(hlo_t *h, ttpu_dtype_e dtype, hlo_val_t like, int dim);
/* Least and greatest value of a type (-inf and inf for floats): the neutral elements of max and min. */
hlo_val_t hlo_lowest(hlo_t *h, ttpu_dtype_e dtype);
hlo_val_t hlo_highest(hlo_t *h, ttpu_dtype_e dtype);

/* --- elementwise: operands of one dtype, broadcast against each other as in PyTorch -------------------- */

hlo_val_t hlo_un(hlo_t *h, const char *op, hlo_val_t x); /* "stablehlo" op of the same result type: "exponential" */
hlo_val_t hlo_bin(hlo_t *h, const char *op, hlo_val_t a, hlo_val_t b);
/* chlo op (name without the dialect); same result type as |a|: "erf", "lgamma", "digamma", "erf_inv", "zeta" ... */
hlo_val_t hlo_chlo(hlo_t *h, const char *op, int count, const hlo_val_t *operands);
hlo_val_t hlo_cmp(hlo_t *h, const char *direction, hlo_val_t a, hlo_val_t b); /* "EQ" "NE" "LT" "LE" "GT" "GE" */
/* PyTorch's order of sorting: NaN equals itself and is greater than all else; -0 equals 0. */
hlo_val_t hlo_cmp_total(hlo_t *h, const char *direction, hlo_val_t a, hlo_val_t b);
hlo_val_t hlo_select(hlo_t *h, hlo_val_t pred, hlo_val_t on_true, hlo_val_t on_false);
hlo_val_t hlo_is_finite(hlo_t *h, hlo_val_t x); /* floats: i1 */
hlo_val_t hlo_is_nan(hlo_t *h, hlo_val_t x);    /* floats and complex: i1 */
hlo_val_t hlo_real(hlo_t *h, hlo_val_t x);
hlo_val_t hlo_imag(hlo_t *h, hlo_val_t x);
hlo_val_t hlo_complex(hlo_t *h, hlo_val_t re, hlo_val_t im);
/* PyTorch's cast: to bool is x != 0, complex to real drops the imaginary part, float to int truncates. */
hlo_val_t hlo_convert(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype);
/* Same bits, StableHLO bitcast_convert: a smaller element adds a last dimension, a larger one removes it. */
hlo_val_t hlo_bitcast(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype);

#define HLO_UN(name, op) \
  static inline hlo_val_t hlo_##name(hlo_t *h, hlo_val_t x) { return hlo_un(h, op, x); }
HLO_UN(abs_real, "abs") /* not for complex; see hlo_abs */
HLO_UN(neg, "negate")
HLO_UN(not, "not") /* logical on i1, bitwise on integers */
HLO_UN(exp, "exponential")
HLO_UN(expm1, "exponential_minus_one")
HLO_UN(log, "log")
HLO_UN(log1p, "log_plus_one")
HLO_UN(sqrt, "sqrt")
HLO_UN(rsqrt, "rsqrt")
HLO_UN(cbrt, "cbrt")
HLO_UN(sin, "sine")
HLO_UN(cos, "cosine")
HLO_UN(tan, "tan")
HLO_UN(tanh, "tanh")
HLO_UN(logistic, "logistic")
HLO_UN(floor, "floor")
HLO_UN(ceil, "ceil")
HLO_UN(round, "round_nearest_even")
HLO_UN(sign, "sign")
HLO_UN(popcnt, "popcnt")
HLO_UN(clz, "count_leading_zeros")
#undef HLO_UN
hlo_val_t hlo_abs(hlo_t *h, hlo_val_t x); /* the real magnitude of a complex x; identity on unsigned and bool */

#define HLO_BIN(name, op) \
  static inline hlo_val_t hlo_##name(hlo_t *h, hlo_val_t a, hlo_val_t b) { return hlo_bin(h, op, a, b); }
HLO_BIN(add, "add")
HLO_BIN(sub, "subtract")
HLO_BIN(mul, "multiply")
HLO_BIN(div, "divide")
HLO_BIN(rem, "remainder")
HLO_BIN(max, "maximum") /* NaN propagates */
HLO_BIN(min, "minimum")
HLO_BIN(pow, "power")
HLO_BIN(atan2, "atan2")
HLO_BIN(and, "and")
HLO_BIN(or, "or")
HLO_BIN(xor, "xor")
HLO_BIN(shl, "shift_left")
HLO_BIN(shr, "shift_right_arithmetic")
HLO_BIN(shr_logical, "shift_right_logical")
#undef HLO_BIN

#define HLO_CMP(name, direction) \
  static inline hlo_val_t hlo_##name(hlo_t *h, hlo_val_t a, hlo_val_t b) { return hlo_cmp(h, direction, a, b); }
HLO_CMP(eq, "EQ")
HLO_CMP(ne, "NE")
HLO_CMP(lt, "LT")
HLO_CMP(le, "LE")
HLO_CMP(gt, "GT")
HLO_CMP(ge, "GE")
#undef HLO_CMP

/* The constant |value| in x's dtype, rank 0 (it broadcasts): hlo_mul(h, x, c) with c = hlo_like(h, x, 0.5). */
hlo_val_t hlo_like(hlo_t *h, hlo_val_t x, double value);

/* --- shape -------------------------------------------------------------------------------------------- */

hlo_val_t hlo_reshape(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims);
hlo_val_t hlo_flatten(hlo_t *h, hlo_val_t x); /* rank 1 */
hlo_val_t hlo_squeeze(hlo_t *h, hlo_val_t x, int dim);   /* that dimension has size 1 */
hlo_val_t hlo_unsqueeze(hlo_t *h, hlo_val_t x, int dim);
hlo_val_t hlo_transpose(hlo_t *h, hlo_val_t x, const int *permutation);
hlo_val_t hlo_swap(hlo_t *h, hlo_val_t x, int a, int b); /* swaps two dimensions; negative count from the end */
/* PyTorch's broadcast: x's dims aligned to the right of |dims|. */
hlo_val_t hlo_expand(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims);
hlo_val_t hlo_expand_like(hlo_t *h, hlo_val_t x, hlo_val_t like);
/* StableHLO broadcast_in_dim: x's dimension i becomes dimension map[i] of the result. */
hlo_val_t hlo_broadcast_in(hlo_t *h, hlo_val_t x, int rank, const int64_t *dims, const int *map);
/* Undoes a reduction: |x| without dimensions |reduced| is spread over |like|'s dims (how softmax subtracts its maximum). */
hlo_val_t hlo_spread(hlo_t *h, hlo_val_t x, hlo_val_t like, int count, const int *reduced);
hlo_val_t hlo_slice(hlo_t *h, hlo_val_t x, const int64_t *start, const int64_t *limit, const int64_t *step); /* step NULL: 1 */
hlo_val_t hlo_slice_dim(hlo_t *h, hlo_val_t x, int dim, int64_t start, int64_t limit, int64_t step);
hlo_val_t hlo_concat(hlo_t *h, int count, const hlo_val_t *xs, int dim);
/* |value| of rank 0. interior may be NULL; low and high may be negative (crop). */
hlo_val_t hlo_pad(hlo_t *h, hlo_val_t x, hlo_val_t value, const int64_t *low, const int64_t *high, const int64_t *interior);
hlo_val_t hlo_pad_dim(hlo_t *h, hlo_val_t x, double value, int dim, int64_t low, int64_t high);
hlo_val_t hlo_reverse(hlo_t *h, hlo_val_t x, int count, const int *dims);
/* starts: one rank-0 integer value a dimension. */
hlo_val_t hlo_dynamic_slice(hlo_t *h, hlo_val_t x, const hlo_val_t *starts, const int64_t *sizes);
hlo_val_t hlo_dynamic_update_slice(hlo_t *h, hlo_val_t x, hlo_val_t update, const hlo_val_t *starts);

/* --- contraction -------------------------------------------------------------------------------------- */

/* Result dims: batch, free dims of a, free dims of b; element type |out| (accumulation type). */
hlo_val_t hlo_dot_general(hlo_t *h, hlo_val_t a, hlo_val_t b, int batch_count, const int *a_batch, const int *b_batch,
                          int contract_count, const int *a_contract, const int *b_contract, ttpu_dtype_e out);
/* a[..., m, k] @ b[..., k, n] with equal leading dims. */
hlo_val_t hlo_matmul(hlo_t *h, hlo_val_t a, hlo_val_t b);

typedef struct {
  int spatial;                 /* number of spatial dimensions; input is N,C,spatial..., kernel is O,I,spatial... */
  const int64_t *stride, *pad_low, *pad_high, *lhs_dilation, *rhs_dilation; /* NULL: ones (zeros for the pads) */
  int64_t feature_groups, batch_groups; /* 0 is 1 */
  const char *dimension_numbers; /* NULL: "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]" for the rank; else this text */
  const int64_t *result_dims;  /* required when dimension_numbers is given, else NULL */
  bool reverse_kernel;         /* window_reversal on every spatial dimension */
} hlo_conv_t;
hlo_val_t hlo_convolution(hlo_t *h, hlo_val_t lhs, hlo_val_t rhs, const hlo_conv_t *conv);

/* --- regions ------------------------------------------------------------------------------------------ */

/* Body of a region: gets the block arguments, must fill |results|. Emits with the same |h|. */
typedef void (*hlo_region_t)(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results);

/* One operand, a named StableHLO op as body ("add" "multiply" "maximum" "minimum" "and" "or" "xor"). The neutral element
 * is the op's own, NaN propagates. The reduced dims are removed. */
hlo_val_t hlo_reduce(hlo_t *h, const char *op, hlo_val_t x, int count, const int *dims);
hlo_val_t hlo_reduce_dim(hlo_t *h, const char *op, hlo_val_t x, int dim);
hlo_val_t hlo_reduce_all(hlo_t *h, const char *op, hlo_val_t x);
/* |n| operands of equal dims reduced together (argmax: value and index); inits are rank 0. Block arguments are
 * acc0..accN-1, x0..xN-1. */
void hlo_reduce_n(hlo_t *h, int n, const hlo_val_t *xs, const hlo_val_t *inits, int count, const int *dims,
                  hlo_region_t body, void *ctx, hlo_val_t *results);
/* Window reduction with a named body (NaN propagates) and |init| of rank 0; all arrays have x's rank; NULL strides/dilations are ones,
 * NULL pads zeros. */
hlo_val_t hlo_reduce_window(hlo_t *h, const char *op, hlo_val_t x, hlo_val_t init, const int64_t *window,
                            const int64_t *stride, const int64_t *base_dilation, const int64_t *window_dilation,
                            const int64_t *pad_low, const int64_t *pad_high);
/* The same over |n| operands and a body of its own. */
void hlo_reduce_window_n(hlo_t *h, int n, const hlo_val_t *xs, const hlo_val_t *inits, const int64_t *window,
                         const int64_t *stride, const int64_t *base_dilation, const int64_t *window_dilation,
                         const int64_t *pad_low, const int64_t *pad_high, hlo_region_t body, void *ctx, hlo_val_t *results);
/* Sorts |n| operands along |dim| by a comparator over a0,b0,a1,b1,... that returns i1. */
void hlo_sort(hlo_t *h, int n, const hlo_val_t *xs, int dim, bool stable, hlo_region_t comparator, void *ctx,
              hlo_val_t *results);
/* while: |n| carried values. cond returns i1. Block arguments are the carried values. */
void hlo_while(hlo_t *h, int n, const hlo_val_t *init, hlo_region_t cond, hlo_region_t body, void *ctx, hlo_val_t *results);
/* for i in [0, trips): carried values plus i (i64, the block's first argument, before the carried ones). */
void hlo_for(hlo_t *h, int64_t trips, int n, const hlo_val_t *init, hlo_region_t body, void *ctx, hlo_val_t *results);
/* if: results of both regions have the same types; no block arguments (values are captured). */
void hlo_if(hlo_t *h, hlo_val_t pred, int n, hlo_region_t then_body, hlo_region_t else_body, void *ctx, hlo_val_t *results);

/* StableHLO gather; arrays as in the specification. The index vectors are the last dimension of |indices|. */
typedef struct {
  int offset_count, collapsed_count, start_map_count, batching_count;
  const int *offset_dims, *collapsed_dims, *start_map;
  const int *operand_batching, *indices_batching;
  const int64_t *slice_sizes;
  bool sorted; /* indices_are_sorted */
} hlo_gather_t;
hlo_val_t hlo_gather(hlo_t *h, hlo_val_t operand, hlo_val_t indices, const hlo_gather_t *g);
/* StableHLO scatter of one operand with a named body: "" overwrites, else "add", "multiply", "maximum", "minimum". */
typedef struct {
  int window_count, inserted_count, map_count, batching_count;
  const int *window_dims, *inserted_dims, *scatter_map;
  const int *operand_batching, *indices_batching;
  bool sorted, unique;
} hlo_scatter_t;
hlo_val_t hlo_scatter(hlo_t *h, const char *op, hlo_val_t operand, hlo_val_t indices, hlo_val_t updates,
                      const hlo_scatter_t *s);
/* Convenience over one dimension, PyTorch's gather/take_along_dim: result has index's dims; index has x's rank. */
hlo_val_t hlo_take_along(hlo_t *h, hlo_val_t x, hlo_val_t index, int dim);
/* index_select: |index| rank 1. */
hlo_val_t hlo_index_select(hlo_t *h, hlo_val_t x, hlo_val_t index, int dim);

/* --- other -------------------------------------------------------------------------------------------- */

/* Philox bits: |state| is ui64[2]; result is u32 or u64 of |dims|. */
hlo_val_t hlo_random_bits(hlo_t *h, hlo_val_t state, ttpu_dtype_e dtype, int rank, const int64_t *dims);
/* The |k| greatest along the last dimension, in order, and their i32 positions; both 0 on failure. */
void hlo_top_k(hlo_t *h, hlo_val_t x, int64_t k, hlo_val_t *values, hlo_val_t *indices);
hlo_val_t hlo_fft(hlo_t *h, hlo_val_t x, const char *type, int count, const int64_t *lengths); /* "FFT" "IFFT" "RFFT" "IRFFT" */
hlo_val_t hlo_cholesky(hlo_t *h, hlo_val_t x, bool lower);
hlo_val_t hlo_triangular_solve(hlo_t *h, hlo_val_t a, hlo_val_t b, bool left, bool lower, bool unit, const char *transpose_a);
/* One line of any op: "stablehlo.foo" with |attributes| text (braces included) and given result type. */
hlo_val_t hlo_raw(hlo_t *h, const char *op, int count, const hlo_val_t *operands, const char *attributes,
                  ttpu_dtype_e dtype, int rank, const int64_t *dims);

#endif /* TTPU_HLO_HLO_H_ */
