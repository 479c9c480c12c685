/* ops.c: the table of rows, and what a lowering reads of its call. Accessors are total: an argument of another kind than
 * asked for reads as absent, and where a value must be emitted the failure is latched in the module.
 */
#include "ops/ops.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ops/families.h"

/* --- the table ------------------------------------------------------------------------------------------ */

const op_row_t op_rows[] = {
#define OP(id, aten, function, detail, flags, formula) {#id, aten, op_emit_##function, detail, flags, NULL, formula},
#define OPW(id, aten, function, detail, flags, writes, formula) \
  {#id, aten, op_emit_##function, detail, flags, writes, formula},
#include "ops/ops.def"
#undef OP
#undef OPW
};

enum { ROW_COUNT = sizeof op_rows / sizeof *op_rows, SLOT_COUNT = 4096 };
const int op_row_count = ROW_COUNT;
_Static_assert(ROW_COUNT * 2 < SLOT_COUNT, "the hash of row names is sparse");

static int16_t slots[SLOT_COUNT]; /* row + 1; 0 is free */

static uint32_t slot_of(const char *name) {
  uint32_t x = 2166136261u; /* FNV-1a */
  for (; *name; name++) x = (x ^ (unsigned char)*name) * 16777619u;
  return (x ^ x >> 15) & (SLOT_COUNT - 1);
}

static void index_rows(void) {
  for (int i = 0; i < ROW_COUNT; i++) {
    uint32_t slot = slot_of(op_rows[i].aten);
    while (slots[slot]) slot = (slot + 1) & (SLOT_COUNT - 1);
    slots[slot] = (int16_t)(i + 1);
  }
}

int op_find(const char *aten_name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, index_rows);
  for (uint32_t slot = slot_of(aten_name); slots[slot]; slot = (slot + 1) & (SLOT_COUNT - 1))
    if (!strcmp(op_rows[slots[slot] - 1].aten, aten_name)) return slots[slot] - 1;
  return -1;
}

static const op_row_t *row_of(const op_call_t *c) {
  static const op_row_t none = {"none", "none", NULL, NULL, 0, NULL, ""};
  return c->inst->row >= 0 && c->inst->row < ROW_COUNT ? &op_rows[c->inst->row] : &none;
}

const char *op_detail(const op_call_t *c) { return row_of(c)->detail; }
const char *op_name(const op_call_t *c) { return row_of(c)->aten; }

/* --- arguments ------------------------------------------------------------------------------------------ */

static const ttpu_arg_t *arg_of(const op_call_t *c, int i) {
  static const ttpu_arg_t none;
  return i >= 0 && i < c->inst->arg_count ? &c->inst->args[i] : &none;
}

static const ttpu_shape_t *shape_of(const op_call_t *c, int32_t operand) {
  static const ttpu_shape_t none;
  return operand >= 0 && operand < c->inst->operand_count ? &c->inst->operands[operand] : &none;
}

static double double_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

/* Parameter |p| as a rank-0 value of |dtype|, by a conversion that a runtime input and a constant do alike. */
static hlo_val_t parameter(hlo_t *h, const op_call_t *c, int32_t p, ttpu_dtype_e dtype) {
  if (p < 0 || p >= c->inst->param_count) return hlo_fail(h, "%s: parameter %d does not exist", op_name(c), (int)p);
  if (c->params[p]) return hlo_convert(h, c->params[p], dtype);
  if (c->inst->param_kinds[p] == 'd') return hlo_const(h, dtype, double_bits(c->constants[p]));
  return hlo_const_int(h, dtype, (int64_t)c->constants[p]);
}

static hlo_val_t complex_parameter(hlo_t *h, const op_call_t *c, int32_t p, ttpu_dtype_e dtype) {
  if (p < 0 || p + 1 >= c->inst->param_count) return hlo_fail(h, "%s: parameter %d does not exist", op_name(c), (int)p);
  if (!c->params[p] && !c->params[p + 1])
    return hlo_const_complex(h, dtype, double_bits(c->constants[p]), double_bits(c->constants[p + 1]));
  const hlo_val_t re = parameter(h, c, p, ttpu_dtype_real(dtype));
  const hlo_val_t im = parameter(h, c, p + 1, ttpu_dtype_real(dtype));
  return hlo_complex(h, re, im);
}

hlo_val_t op_scalar(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e dtype) {
  const ttpu_arg_t *arg = arg_of(c, i);
  switch (arg->kind) {
    case TTPU_ARG_TENSOR: return op_tensor_as(h, c, i, dtype);
    case TTPU_ARG_SCALAR:
      if (!ttpu_dtype_is_complex(arg->dtype)) return parameter(h, c, arg->first, dtype);
      if (ttpu_dtype_is_complex(dtype)) return complex_parameter(h, c, arg->first, dtype);
      return hlo_convert(h, complex_parameter(h, c, arg->first, arg->dtype), dtype);
    case TTPU_ARG_NUMBER: return hlo_const(h, dtype, arg->u.number);
    case TTPU_ARG_INT: return hlo_const_int(h, dtype, arg->u.integer);
    case TTPU_ARG_DOUBLES: /* a literal complex number: (re, im) */
      if (arg->count == 2 && ttpu_dtype_is_complex(dtype))
        return hlo_const_complex(h, dtype, arg->u.numbers[0], arg->u.numbers[1]);
      if (arg->count == 2) return hlo_const(h, dtype, arg->u.numbers[0]);
      break;
    default: break;
  }
  return hlo_fail(h, "%s: argument %d is not a number", op_name(c), i);
}

static hlo_val_t operand(hlo_t *h, const op_call_t *c, int i, int32_t number) {
  if (number < 0 || number >= c->inst->operand_count)
    return hlo_fail(h, "%s: argument %d is not a tensor", op_name(c), i);
  return c->operands[number];
}

hlo_val_t op_tensor(hlo_t *h, const op_call_t *c, int i) {
  const ttpu_arg_t *arg = arg_of(c, i);
  switch (arg->kind) {
    case TTPU_ARG_TENSOR: return operand(h, c, i, arg->first);
    case TTPU_ARG_SCALAR:
    case TTPU_ARG_NUMBER:
    case TTPU_ARG_INT: return op_scalar(h, c, i, op_arg_dtype(c, i));
    default: return operand(h, c, i, -1);
  }
}

hlo_val_t op_tensor_as(hlo_t *h, const op_call_t *c, int i, ttpu_dtype_e dtype) {
  if (arg_of(c, i)->kind != TTPU_ARG_TENSOR) return op_scalar(h, c, i, dtype);
  return hlo_convert(h, op_tensor(h, c, i), dtype);
}

bool op_has(const op_call_t *c, int i) {
  const ttpu_arg_t *arg = arg_of(c, i);
  return arg->kind != TTPU_ARG_NONE && !(arg->kind == TTPU_ARG_TENSOR && arg->first < 0);
}

int op_list_size(const op_call_t *c, int i) { return arg_of(c, i)->kind == TTPU_ARG_TENSORS ? arg_of(c, i)->count : 0; }

bool op_list_has(const op_call_t *c, int i, int j) {
  return j >= 0 && j < op_list_size(c, i) && arg_of(c, i)->u.items[j] >= 0;
}

hlo_val_t op_list_tensor(hlo_t *h, const op_call_t *c, int i, int j) {
  return operand(h, c, i, op_list_has(c, i, j) ? (int32_t)arg_of(c, i)->u.items[j] : -1);
}

/* The operand that stands for the argument: itself, or the first tensor of a list. */
static int32_t operand_number(const op_call_t *c, int i) {
  const ttpu_arg_t *arg = arg_of(c, i);
  if (arg->kind == TTPU_ARG_TENSOR) return arg->first;
  for (int j = 0; j < op_list_size(c, i); j++)
    if (arg->u.items[j] >= 0) return (int32_t)arg->u.items[j];
  return -1;
}

ttpu_dtype_e op_arg_dtype(const op_call_t *c, int i) {
  const ttpu_arg_t *arg = arg_of(c, i);
  switch (arg->kind) {
    case TTPU_ARG_TENSOR:
    case TTPU_ARG_TENSORS: return shape_of(c, operand_number(c, i))->dtype;
    case TTPU_ARG_NUMBER: return arg->dtype ? arg->dtype : TTPU_F64;
    case TTPU_ARG_INT: return arg->dtype ? arg->dtype : TTPU_I64;
    case TTPU_ARG_DOUBLES: return arg->dtype ? arg->dtype : TTPU_C128;
    default: return arg->dtype;
  }
}

bool op_arg_is_wrapped(const op_call_t *c, int i) { return arg_of(c, i)->wrapped; }
int op_arg_rank(const op_call_t *c, int i) { return shape_of(c, operand_number(c, i))->rank; }

const int64_t *op_arg_dims(const op_call_t *c, int i) {
  static const int64_t none[TTPU_MAX_RANK];
  const ttpu_shape_t *shape = shape_of(c, operand_number(c, i));
  return shape->rank ? shape->dims : none;
}

/* --- literals ------------------------------------------------------------------------------------------- */

double op_number(hlo_t *h, const op_call_t *c, int i, double absent) {
  const ttpu_arg_t *arg = arg_of(c, i);
  switch (arg->kind) {
    case TTPU_ARG_NONE: return absent;
    case TTPU_ARG_NUMBER: return arg->u.number;
    case TTPU_ARG_INT: return (double)arg->u.integer;
    default:
      hlo_fail(h, "%s: the value of argument %d is not known when the program is written", op_name(c), i);
      return absent;
  }
}

int64_t op_int(const op_call_t *c, int i, int64_t absent) {
  const ttpu_arg_t *arg = arg_of(c, i);
  if (arg->kind == TTPU_ARG_INT) return arg->u.integer;
  return arg->kind == TTPU_ARG_NUMBER ? (int64_t)arg->u.number : absent;
}

bool op_bool(const op_call_t *c, int i, bool absent) { return op_int(c, i, absent) != 0; }

int op_ints(const op_call_t *c, int i, const int64_t **out_values) {
  static const int64_t none[1];
  const ttpu_arg_t *arg = arg_of(c, i);
  *out_values = none;
  if (arg->kind == TTPU_ARG_INT) { /* one number where a list is expected */
    *out_values = &arg->u.integer;
    return 1;
  }
  if (arg->kind != TTPU_ARG_INTS || !arg->count) return 0;
  *out_values = arg->u.items;
  return arg->count;
}

int op_bools(const op_call_t *c, int i, const int64_t **out_values) { return op_ints(c, i, out_values); }

int op_doubles(const op_call_t *c, int i, const double **out_values) {
  static const double none[1];
  const ttpu_arg_t *arg = arg_of(c, i);
  *out_values = none;
  if (arg->kind == TTPU_ARG_NUMBER) {
    *out_values = &arg->u.number;
    return 1;
  }
  if (arg->kind != TTPU_ARG_DOUBLES || !arg->count) return 0;
  *out_values = arg->u.numbers;
  return arg->count;
}

const char *op_string(const op_call_t *c, int i) {
  return arg_of(c, i)->kind == TTPU_ARG_STRING ? arg_of(c, i)->u.text : "";
}

ttpu_dtype_e op_dtype(const op_call_t *c, int i) {
  const ttpu_arg_t *arg = arg_of(c, i);
  return arg->kind == TTPU_ARG_INT ? ttpu_dtype_from_torch((int)arg->u.integer) : TTPU_DTYPE_NONE;
}

static int wrap(int64_t dim, int rank) { return (int)(dim < 0 ? dim + (rank ? rank : 1) : dim); }

int op_dim(const op_call_t *c, int i, int rank) { return wrap(op_int(c, i, 0), rank); }

int op_dims(const op_call_t *c, int i, int rank, int *out) {
  const int64_t *values;
  const int count = op_ints(c, i, &values);
  if (!count) {
    for (int d = 0; d < rank; d++) out[d] = d;
    return rank;
  }
  if (!rank) return 0; /* a scalar has no dimension to name: 0 and -1 mean itself */
  const int n = count < TTPU_MAX_RANK ? count : TTPU_MAX_RANK;
  for (int d = 0; d < n; d++) out[d] = wrap(values[d], rank);
  return n;
}

/* --- random state --------------------------------------------------------------------------------------- */

static hlo_val_t state_word(hlo_t *h, const op_call_t *c, int32_t p) {
  static const int64_t one[] = {1};
  hlo_val_t word = c->params[p];
  if (!word) return hlo_reshape(h, hlo_const_int(h, TTPU_U64, (int64_t)c->constants[p]), 1, one);
  if (hlo_dtype(h, word) != TTPU_U64) word = hlo_bitcast(h, word, TTPU_U64);
  return hlo_reshape(h, word, 1, one);
}

hlo_val_t op_random_state(hlo_t *h, const op_call_t *c) {
  int32_t p = 0;
  while (p < c->inst->param_count && c->inst->param_kinds[p] != 'r') p++;
  if (p + 1 >= c->inst->param_count) return hlo_fail(h, "%s: this call has no random state", op_name(c));
  const hlo_val_t seed = state_word(h, c, p), offset = state_word(h, c, p + 1);
  const hlo_val_t words[] = {seed, offset};
  return hlo_concat(h, 2, words, 0);
}

/* --- results -------------------------------------------------------------------------------------------- */

static const ttpu_shape_t *result_shape(const op_call_t *c, int k) {
  static const ttpu_shape_t none;
  return k >= 0 && k < c->inst->result_count ? &c->inst->results[k].shape : &none;
}

int op_result_count(const op_call_t *c) { return c->inst->result_count; }
ttpu_dtype_e op_result_dtype(const op_call_t *c, int k) { return result_shape(c, k)->dtype; }
int op_result_rank(const op_call_t *c, int k) { return result_shape(c, k)->rank; }

const int64_t *op_result_dims(const op_call_t *c, int k) {
  static const int64_t none[TTPU_MAX_RANK];
  return result_shape(c, k)->rank ? result_shape(c, k)->dims : none;
}

bool op_result_wanted(const op_call_t *c, int k) { return op_result_dtype(c, k) != TTPU_DTYPE_NONE; }

void op_ret(hlo_t *h, const op_call_t *c, int k, hlo_val_t value) {
  if (k < 0 || k >= c->inst->result_count) {
    hlo_fail(h, "%s: there is no result %d", op_name(c), k);
    return;
  }
  if (hlo_failed(h) || !op_result_wanted(c, k)) return;
  const ttpu_shape_t *shape = result_shape(c, k);
  value = hlo_convert(h, value, shape->dtype);
  value = hlo_expand(h, value, shape->rank, shape->dims);
  c->results[k] = value;
}

/* --- promotion ------------------------------------------------------------------------------------------ */

/* torch.result_type keeps three classes apart: tensors with dimensions, scalar tensors, Python numbers. */
typedef struct {
  ttpu_dtype_e dimensioned, scalar, wrapped;
} classes_t;

static void classify(const op_call_t *c, int i, ttpu_dtype_e default_dtype, classes_t *classes) {
  ttpu_dtype_e dtype = op_arg_dtype(c, i);
  ttpu_dtype_e *into = op_arg_rank(c, i) ? &classes->dimensioned : &classes->scalar;
  if (op_arg_is_wrapped(c, i)) {
    into = &classes->wrapped;
    if (ttpu_dtype_is_float(dtype)) dtype = default_dtype;
    if (ttpu_dtype_is_complex(dtype)) dtype = ttpu_dtype_complex(default_dtype);
  }
  *into = ttpu_dtype_promote(*into, dtype);
}

/* A lower class changes only the kind of a higher one. */
static ttpu_dtype_e combine(ttpu_dtype_e higher, ttpu_dtype_e lower) {
  if (ttpu_dtype_is_complex(higher)) return higher;
  if (ttpu_dtype_is_float(higher)) return ttpu_dtype_is_complex(lower) ? ttpu_dtype_complex(higher) : higher;
  if (higher == TTPU_BOOL || ttpu_dtype_is_float(lower) || ttpu_dtype_is_complex(lower))
    return ttpu_dtype_promote(higher, lower);
  return higher ? higher : lower;
}

ttpu_dtype_e op_result_type(const op_call_t *c, int i, int j) {
  /* The default dtype is not an argument; a double result of no double operand tells that it is double. */
  const ttpu_dtype_e result = op_result_dtype(c, 0);
  const ttpu_dtype_e default_dtype =
      result == TTPU_F64 || result == TTPU_C128 || result == TTPU_F16 || result == TTPU_BF16 ? ttpu_dtype_real(result)
                                                                                             : TTPU_F32;
  classes_t classes = {TTPU_DTYPE_NONE, TTPU_DTYPE_NONE, TTPU_DTYPE_NONE};
  classify(c, i, default_dtype, &classes);
  classify(c, j, default_dtype, &classes);
  return combine(classes.dimensioned, combine(classes.scalar, classes.wrapped));
}
