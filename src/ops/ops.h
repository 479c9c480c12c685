/* ops.h: what a lowering sees: the arguments of one ATen call, by schema position, and where its results go.
 *
 * One row of ops.def is one semantic group (functional, in-place and out= forms share it). The row's function is
 * called on a cache miss with dense operands; it emits with hlo_* and hands each result to op_ret. Argument numbers
 * count the functional overload's schema arguments from 0, keyword-only ones included.
 */
#ifndef TTPU_OPS_OPS_H_
#define TTPU_OPS_OPS_H_

#include "graph/inst.h"
#include "hlo/hlo.h"

/* --- the table ---------------------------------------------------------------------------------------- */

typedef void (*op_emit_t)(hlo_t *h, const op_call_t *c);

typedef enum {
  OP_PLAIN = 0,
  OP_STATIC = 1,     /* every Scalar/float argument is a word of the instance, readable by op_number; none is a runtime parameter */
  OP_RANDOM = 2,     /* draws random numbers: op_random_state is there */
  OP_CPU_INDEX = 4,  /* CPU index tensors are uploaded, as CUDA does */
  OP_COMPUTES_OWN = 8, /* operands are not promoted: reserved for rows that need the raw views */
  OP_LAYOUT = 16 /* behind the schema's arguments comes one more int: bit k tells that operand k is contiguous */
} op_flags_e;

typedef struct {
  const char *id;      /* C identifier of the row */
  const char *aten;    /* functional overload without "aten::", e.g. "add.Tensor" */
  op_emit_t emit;
  const char *detail;  /* family-specific, usually a StableHLO op name; may be NULL */
  unsigned flags;
  const char *writes;  /* argument numbers whose tensors are mutated without an annotation in the schema, "3,4"; or NULL */
  const char *formula; /* for docs/operators.md */
} op_row_t;

extern const op_row_t op_rows[];
extern const int op_row_count;
/* Index of the row of |aten_name| ("add.Tensor"), -1 when there is none. Thread-safe. */
int op_find(const char *aten_name);

/* --- arguments ---------------------------------------------------------------------------------------- */

/* Tensor argument |i|, dense, in its own dtype. A 0-dim CPU tensor or Scalar given there is a rank-0 value. */
hlo_val_t op_tensor(hlo_t *h, const op_call_t *c, int i);
hlo_val_t op_tensor_as(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e dtype);
bool op_has(const op_call_t *c, int i);           /* not None, not undefined */
int op_list_size(const op_call_t *c, int i);      /* tensor list */
bool op_list_has(const op_call_t *c, int i, int j);
hlo_val_t op_list_tensor(hlo_t *h, const op_call_t *c, int i, int j);
ttpu_dtype_e op_arg_dtype(const op_call_t *c, int i); /* of a tensor or scalar argument (bool, I64, F64, C128 for scalars) */
bool op_arg_is_wrapped(const op_call_t *c, int i);    /* a Python number: does not take part in promotion with equal kind */
int op_arg_rank(const op_call_t *c, int i);
const int64_t *op_arg_dims(const op_call_t *c, int i);

/* Scalar / float argument as an emitted rank-0 value of |dtype|: constant or runtime parameter, the recorder decides. */
hlo_val_t op_scalar(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e dtype);
/* The same as a C number: only where the row is OP_STATIC (else the emitter fails). |absent| when None. */
double op_number(hlo_t *h, const op_call_t *c, int i, double absent);
int64_t op_int(const op_call_t *c, int i, int64_t absent);  /* int, bool, dtype-free enums (reduction, modes) */
bool op_bool(const op_call_t *c, int i, bool absent);
int op_ints(const op_call_t *c, int i, const int64_t **out_values); /* int[]; count 0 for None */
int op_doubles(const op_call_t *c, int i, const double **out_values);
int op_bools(const op_call_t *c, int i, const int64_t **out_values); /* bool[3] output masks */
const char *op_string(const op_call_t *c, int i); /* "" for None */
ttpu_dtype_e op_dtype(const op_call_t *c, int i); /* ScalarType argument; NONE for None */
int op_dim(const op_call_t *c, int i, int rank);  /* int argument as a wrapped dimension; rank 0 counts as 1 */
/* int[1] dims argument -> wrapped list in |out| (room for TTPU_MAX_RANK); empty or None means all dims. Returns count. */
int op_dims(const op_call_t *c, int i, int rank, int *out);
hlo_val_t op_random_state(hlo_t *h, const op_call_t *c); /* ui64[2]: (seed, offset) of this call */

/* --- results ------------------------------------------------------------------------------------------ */

/* Results are the schema's returns in order, then the tensors of |writes|. Lists are flattened. What is asked for: */
int op_result_count(const op_call_t *c);
ttpu_dtype_e op_result_dtype(const op_call_t *c, int k);
int op_result_rank(const op_call_t *c, int k);
const int64_t *op_result_dims(const op_call_t *c, int k);
bool op_result_wanted(const op_call_t *c, int k); /* false: undefined in this call (output_mask, eval mode) */
/* Gives result |k|: converted to its dtype when needed; its dims must be those of op_result_dims (a broadcast is done). */
void op_ret(hlo_t *h, const op_call_t *c, int k, hlo_val_t value);
const char *op_detail(const op_call_t *c);
const char *op_name(const op_call_t *c);

/* --- shared by families (ops.c) ------------------------------------------------------------------------ */

/* Type in which a binary op computes: torch.result_type of arguments |i| and |j|. */
ttpu_dtype_e op_result_type(const op_call_t *c, int i, int j);

#endif /* TTPU_OPS_OPS_H_ */
