/* inst.h: the interned op instance: everything about one ATen call except the data and the parameters.
 *
 * An instance is found by its words (operator, exact layouts, tags, literal arguments). It holds
 *   the layout:    what each output tensor looks like (sizes, strides, dtype), used to build them;
 *   the skeleton:  a 128-bit hash of what shapes the program (dims and dtypes, no strides of operands);
 *   the arguments: decoded once, read by the lowering.
 * Parameters (scalars, slice starts, random states) are not part of it: each node carries its own vector.
 * Immutable once published; counted; the table holds one reference. Thread-safe under the device's lock.
 */
#ifndef TTPU_GRAPH_INST_H_
#define TTPU_GRAPH_INST_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "graph/dtype.h"

/* The shim fills drafts from C++, which has no _Atomic; it never touches the count. */
#ifdef __cplusplus
typedef int32_t ttpu_atomic_int_t;
#else
typedef _Atomic int32_t ttpu_atomic_int_t;
#endif

typedef enum {
  TTPU_ARG_NONE = 0,
  TTPU_ARG_TENSOR,   /* |first| = operand number */
  TTPU_ARG_TENSORS,  /* |count| entries: items[j] = operand number, or -1 for undefined */
  TTPU_ARG_SCALAR,   /* runtime-capable number: |first| = parameter number, |dtype| its kind */
  TTPU_ARG_NUMBER,   /* literal double in |number| */
  TTPU_ARG_INT,      /* literal in |integer|: int, bool, enums, ScalarType */
  TTPU_ARG_INTS,     /* |count| literals in items */
  TTPU_ARG_DOUBLES,  /* |count| literals in numbers */
  TTPU_ARG_STRING,   /* |text| */
} ttpu_arg_e;

typedef struct {
  ttpu_arg_e kind;
  int32_t first, count;
  ttpu_dtype_e dtype; /* SCALAR, or a TENSOR position that was given a number: its dtype */
  bool wrapped;       /* a Python number */
  union {
    int64_t integer;
    double number;
    const int64_t *items;
    const double *numbers;
    const char *text;
  } u;
} ttpu_arg_t;

typedef struct {
  ttpu_dtype_e dtype;
  int32_t rank;
  const int64_t *dims;
} ttpu_shape_t;

/* One result of the node. |alias| >= 0: it is written into that target of the call (in-place, out=, running
 * statistics); else it is a fresh tensor of |strides|. */
typedef struct {
  ttpu_shape_t shape;     /* what the lowering computes; dtype NONE: undefined, never computed */
  const int64_t *strides; /* of the fresh output tensor (elements) */
  int32_t alias;          /* target number, or -1 */
} ttpu_result_t;

struct op_row; /* ops.h */

typedef struct ttpu_inst {
  struct ttpu_inst *next; /* bucket chain of the table */
  struct ttpu_inst *age;  /* the instance added after this one */
  ttpu_hash_t hash;       /* of the words */
  ttpu_hash_t skeleton;
  ttpu_atomic_int_t refs;
  int32_t row;            /* index in op_rows */
  int32_t arg_count, operand_count, result_count, param_count, word_count;
  const ttpu_arg_t *args;
  const ttpu_shape_t *operands;
  const ttpu_result_t *results;
  const uint64_t *words;
  const char *param_kinds; /* one a parameter: 'd' double bits, 'i' int64, 'r' int64 that is always a runtime input */
} ttpu_inst_t;

/* What a lowering is called with (ops.h reads it). Lives during one emission. */
typedef struct op_call {
  const ttpu_inst_t *inst;
  const int32_t *operands;   /* hlo values, dense; one an operand */
  const int32_t *params;     /* hlo values, rank 0: f64 or i64, or 0 when constant */
  const uint64_t *constants; /* bits of each parameter that is constant here */
  int32_t *results;          /* hlo values, filled by op_ret */
} op_call_t;

#endif /* TTPU_GRAPH_INST_H_ */
