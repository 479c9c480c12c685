/* ops_test.c: the table of rows, and what the accessors give for arguments of each kind. */
#include "ops/ops.h"

#include "check.h"
#include "graph/dtype.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
static const int64_t dims23[] = {2, 3}, ints[] = {-1, 0}, list[] = {1, -1, 0}, mask[] = {1, 0, 1};
static const double doubles[] = {0.5, 2};

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits;
}

/* A call with one argument of each kind; parameters 1 and 5 can be made inputs. */
typedef struct {
  ttpu_arg_t args[16];
  ttpu_shape_t operands[2];
  ttpu_result_t results[3];
  ttpu_inst_t inst;
  int32_t values[2], params[6], outs[3];
  uint64_t constants[6];
  op_call_t call;
  hlo_t *h;
} fixture_t;

enum { TENSOR, LIST, DOUBLE, INTEGER, COMPLEX, NUMBER, LITERAL, INTS, DOUBLES, TEXT, NONE, SCALAR_TYPE, MASK, LAST };

static void setup(fixture_t *f) {
  *f = (fixture_t){0};
  f->h = hlo_create();
  f->args[TENSOR] = (ttpu_arg_t){.kind = TTPU_ARG_TENSOR, .first = 0};
  f->args[LIST] = (ttpu_arg_t){.kind = TTPU_ARG_TENSORS, .count = 3, .u.items = list};
  f->args[DOUBLE] = (ttpu_arg_t){.kind = TTPU_ARG_SCALAR, .first = 0, .dtype = TTPU_F64, .wrapped = true};
  f->args[INTEGER] = (ttpu_arg_t){.kind = TTPU_ARG_SCALAR, .first = 1, .dtype = TTPU_I64, .wrapped = true};
  f->args[COMPLEX] = (ttpu_arg_t){.kind = TTPU_ARG_SCALAR, .first = 2, .dtype = TTPU_C128, .wrapped = true};
  f->args[NUMBER] = (ttpu_arg_t){.kind = TTPU_ARG_NUMBER, .u.number = 0.25};
  f->args[LITERAL] = (ttpu_arg_t){.kind = TTPU_ARG_INT, .u.integer = -1};
  f->args[INTS] = (ttpu_arg_t){.kind = TTPU_ARG_INTS, .count = 2, .u.items = ints};
  f->args[DOUBLES] = (ttpu_arg_t){.kind = TTPU_ARG_DOUBLES, .count = 2, .u.numbers = doubles};
  f->args[TEXT] = (ttpu_arg_t){.kind = TTPU_ARG_STRING, .u.text = "ij"};
  f->args[SCALAR_TYPE] = (ttpu_arg_t){.kind = TTPU_ARG_INT, .u.integer = ttpu_dtype_torch(TTPU_BF16)};
  f->args[MASK] = (ttpu_arg_t){.kind = TTPU_ARG_INTS, .count = 3, .u.items = mask};
  f->operands[0] = (ttpu_shape_t){TTPU_F32, 2, dims23};
  f->operands[1] = (ttpu_shape_t){TTPU_I64, 0, NULL};
  f->results[0] = (ttpu_result_t){.shape = {TTPU_F64, 2, dims23}, .alias = -1};
  f->results[1] = (ttpu_result_t){.shape = {TTPU_DTYPE_NONE, 0, NULL}, .alias = -1};
  f->results[2] = (ttpu_result_t){.shape = {TTPU_BOOL, 0, NULL}, .alias = -1};
  f->constants[0] = bits_of(0.1);
  f->constants[1] = (uint64_t)-7;
  f->constants[2] = bits_of(1.5);
  f->constants[3] = bits_of(-2);
  f->constants[4] = 11;
  f->constants[5] = 22;
  f->inst = (ttpu_inst_t){.row = op_find("mul.Tensor"), .arg_count = LAST, .operand_count = 2, .result_count = 3,
                          .param_count = 6, .args = f->args, .operands = f->operands, .results = f->results,
                          .param_kinds = "diddrr"};
  for (int i = 0; i < 2; i++)
    f->values[i] = hlo_parameter(f->h, f->operands[i].dtype, f->operands[i].rank, f->operands[i].dims, NULL);
  f->call = (op_call_t){&f->inst, f->values, f->params, f->constants, f->outs};
}

/* The program that returns |value|, with |part| in its text. */
static bool writes(fixture_t *f, hlo_val_t value, const char *part) {
  const char *text = "";
  size_t size;
  const bool ok = CHECK_OK(hlo_finish(f->h, 1, &value, &text, &size)) && strstr(text, part);
  if (!ok) fprintf(stderr, "no \"%s\" in:\n%s", part, text ? text : "");
  hlo_free(f->h);
  return ok;
}

TEST(rows) {
  for (int i = 0; i < op_row_count; i++) {
    CHECK_INT(op_find(op_rows[i].aten), i); /* also: no name twice */
    CHECK(op_rows[i].emit && op_rows[i].formula && *op_rows[i].formula);
    for (int j = 0; j < i; j++)
      if (!CHECK(strcmp(op_rows[i].id, op_rows[j].id))) fprintf(stderr, "%s twice\n", op_rows[i].id);
  }
  CHECK_INT(op_find("no.such"), -1);
  CHECK_INT(op_find(""), -1);
}

TEST(descriptions) {
  fixture_t f;
  setup(&f);
  const op_call_t *c = &f.call;
  CHECK_STR(op_name(c), "mul.Tensor");
  CHECK(op_has(c, TENSOR) && op_has(c, NUMBER) && !op_has(c, NONE) && !op_has(c, 99));
  CHECK_INT(op_arg_dtype(c, TENSOR), TTPU_F32);
  CHECK_INT(op_arg_rank(c, TENSOR), 2);
  CHECK_INT(op_arg_dims(c, TENSOR)[1], 3);
  CHECK_INT(op_arg_dtype(c, DOUBLE), TTPU_F64);
  CHECK_INT(op_arg_dtype(c, COMPLEX), TTPU_C128);
  CHECK_INT(op_arg_dtype(c, LITERAL), TTPU_I64);
  CHECK(op_arg_is_wrapped(c, DOUBLE) && !op_arg_is_wrapped(c, TENSOR));
  CHECK_INT(op_arg_rank(c, DOUBLE), 0);
  CHECK_INT(op_list_size(c, LIST), 3);
  CHECK(op_list_has(c, LIST, 0) && !op_list_has(c, LIST, 1) && op_list_has(c, LIST, 2) && !op_list_has(c, LIST, 3));
  CHECK_INT(op_list_tensor(f.h, c, LIST, 0), f.values[1]);
  CHECK_INT(op_list_size(c, TENSOR), 0);
  hlo_free(f.h);
}

TEST(literals) {
  fixture_t f;
  setup(&f);
  const op_call_t *c = &f.call;
  const int64_t *values;
  const double *numbers;
  int dims[TTPU_MAX_RANK];
  CHECK_INT(op_int(c, LITERAL, 5), -1);
  CHECK_INT(op_int(c, NONE, 5), 5);
  CHECK(op_bool(c, LITERAL, false) && op_bool(c, NONE, true));
  CHECK_NEAR(op_number(f.h, c, NUMBER, 9), 0.25, 0);
  CHECK_NEAR(op_number(f.h, c, NONE, 9), 9, 0);
  CHECK_INT(op_ints(c, INTS, &values), 2);
  CHECK_INT(values[0], -1);
  CHECK_INT(op_ints(c, LITERAL, &values), 1);
  CHECK_INT(values[0], -1);
  CHECK_INT(op_ints(c, NONE, &values), 0);
  CHECK_INT(op_bools(c, MASK, &values), 3);
  CHECK_INT(values[2], 1);
  CHECK_INT(op_doubles(c, DOUBLES, &numbers), 2);
  CHECK_NEAR(numbers[1], 2, 0);
  CHECK_STR(op_string(c, TEXT), "ij");
  CHECK_STR(op_string(c, NONE), "");
  CHECK_INT(op_dtype(c, SCALAR_TYPE), TTPU_BF16);
  CHECK_INT(op_dtype(c, NONE), TTPU_DTYPE_NONE);
  CHECK_INT(op_dim(c, LITERAL, 3), 2);
  CHECK_INT(op_dim(c, LITERAL, 0), 0);
  CHECK_INT(op_dims(c, INTS, 3, dims), 2);
  CHECK(dims[0] == 2 && dims[1] == 0);
  CHECK_INT(op_dims(c, NONE, 3, dims), 3);
  CHECK(dims[0] == 0 && dims[2] == 2);
  CHECK_INT(op_dims(c, LITERAL, 0, dims), 0);
  CHECK(!hlo_failed(f.h));
  op_number(f.h, c, DOUBLE, 0);
  CHECK(hlo_failed(f.h)); /* a parameter is not a literal */
  hlo_free(f.h);
}

#define SCALAR(argument, dtype, part)                            \
  do {                                                           \
    fixture_t f;                                                 \
    setup(&f);                                                   \
    CHECK(writes(&f, op_scalar(f.h, &f.call, argument, dtype), part)); \
  } while (0)

TEST(constant_scalars) {
  SCALAR(DOUBLE, TTPU_F32, "dense<0.1> : tensor<f32>");
  SCALAR(DOUBLE, TTPU_F64, "dense<0.1> : tensor<f64>");
  SCALAR(DOUBLE, TTPU_BF16, "dense<0.100097656> : tensor<bf16>");
  SCALAR(DOUBLE, TTPU_I32, "dense<0> : tensor<i32>");
  SCALAR(DOUBLE, TTPU_BOOL, "dense<true> : tensor<i1>");
  SCALAR(DOUBLE, TTPU_C64, "dense<(0.1, 0.0)> : tensor<complex<f32>>");
  SCALAR(INTEGER, TTPU_I64, "dense<-7> : tensor<i64>");
  SCALAR(INTEGER, TTPU_U8, "dense<249> : tensor<ui8>");
  SCALAR(INTEGER, TTPU_F32, "dense<-7.0> : tensor<f32>");
  SCALAR(COMPLEX, TTPU_C64, "dense<(1.5, -2.0)> : tensor<complex<f32>>");
  SCALAR(NUMBER, TTPU_F32, "dense<0.25> : tensor<f32>");
  SCALAR(LITERAL, TTPU_F32, "dense<-1.0> : tensor<f32>");
  SCALAR(TENSOR, TTPU_F64, "\"stablehlo.convert\"(%1) : (tensor<2x3xf32>) -> tensor<2x3xf64>");
}

TEST(runtime_scalars) {
  fixture_t f;
  setup(&f);
  f.params[0] = hlo_parameter(f.h, TTPU_F64, 0, NULL, NULL);
  CHECK(writes(&f, op_scalar(f.h, &f.call, DOUBLE, TTPU_F32), "\"stablehlo.convert\"(%3) : (tensor<f64>) -> tensor<f32>"));
  setup(&f);
  f.params[1] = hlo_parameter(f.h, TTPU_I64, 0, NULL, NULL);
  CHECK(writes(&f, op_tensor(f.h, &f.call, INTEGER), "func.return %3 : tensor<i64>"));
  setup(&f);
  f.params[2] = hlo_parameter(f.h, TTPU_F64, 0, NULL, NULL); /* one half is known, the other is not */
  CHECK(writes(&f, op_scalar(f.h, &f.call, COMPLEX, TTPU_C128), "\"stablehlo.complex\"(%3, "));
  setup(&f);
  CHECK_INT(op_scalar(f.h, &f.call, TEXT, TTPU_F32), 0);
  CHECK(hlo_failed(f.h));
  hlo_free(f.h);
}

TEST(random_state) {
  fixture_t f;
  setup(&f);
  const hlo_val_t state = op_random_state(f.h, &f.call);
  CHECK_INT(hlo_dtype(f.h, state), TTPU_U64);
  CHECK_INT(hlo_dim(f.h, state, 0), 2);
  CHECK(writes(&f, state, "dense<22> : tensor<1xui64>"));
  setup(&f);
  f.params[5] = hlo_parameter(f.h, TTPU_I64, 0, NULL, NULL);
  CHECK(writes(&f, op_random_state(f.h, &f.call), "\"stablehlo.bitcast_convert\"(%3) : (tensor<i64>) -> tensor<ui64>"));
  setup(&f);
  f.inst.param_kinds = "didddd";
  CHECK_INT(op_random_state(f.h, &f.call), 0);
  hlo_free(f.h);
}

TEST(results) {
  fixture_t f;
  setup(&f);
  CHECK_INT(op_result_count(&f.call), 3);
  CHECK(op_result_wanted(&f.call, 0) && !op_result_wanted(&f.call, 1) && !op_result_wanted(&f.call, 3));
  op_ret(f.h, &f.call, 0, hlo_const(f.h, TTPU_F32, 2)); /* cast and broadcast */
  CHECK_INT(hlo_dtype(f.h, f.outs[0]), TTPU_F64);
  CHECK_INT(hlo_numel(f.h, f.outs[0]), 6);
  op_ret(f.h, &f.call, 1, f.values[0]); /* not wanted: dropped */
  CHECK_INT(f.outs[1], 0);
  CHECK(!hlo_failed(f.h));
  op_ret(f.h, &f.call, 2, f.values[0]); /* six elements are not one */
  CHECK(hlo_failed(f.h));
  hlo_free(f.h);
}

TEST(promotion) {
  fixture_t f;
  setup(&f);
  ttpu_shape_t *x = &f.operands[0], *y = &f.operands[1];
  ttpu_arg_t *second = &f.args[LIST]; /* argument 1 */
  *second = (ttpu_arg_t){.kind = TTPU_ARG_TENSOR, .first = 1};
  f.results[0].shape.dtype = TTPU_F32;
  const struct {
    ttpu_dtype_e x, y;
    int y_rank;
    ttpu_dtype_e expected;
  } tensors[] = {
      {TTPU_F32, TTPU_F64, 0, TTPU_F32},  {TTPU_F32, TTPU_F64, 2, TTPU_F64},  {TTPU_I32, TTPU_I64, 0, TTPU_I32},
      {TTPU_I32, TTPU_F64, 0, TTPU_F64},  {TTPU_BOOL, TTPU_I64, 0, TTPU_I64}, {TTPU_F16, TTPU_BF16, 2, TTPU_F32},
      {TTPU_F32, TTPU_C128, 0, TTPU_C64}, {TTPU_U8, TTPU_I8, 2, TTPU_I16},
  };
  for (int i = 0; i < COUNT(tensors); i++) {
    x->dtype = tensors[i].x;
    *y = (ttpu_shape_t){tensors[i].y, tensors[i].y_rank, dims23};
    CHECK_INT(op_result_type(&f.call, 0, 1), tensors[i].expected);
    CHECK_INT(op_result_type(&f.call, 1, 0), tensors[i].expected);
  }
  x->dtype = TTPU_I32;
  CHECK_INT(op_result_type(&f.call, TENSOR, DOUBLE), TTPU_F32); /* a Python number has the default dtype */
  CHECK_INT(op_result_type(&f.call, TENSOR, INTEGER), TTPU_I32);
  x->dtype = TTPU_BF16;
  CHECK_INT(op_result_type(&f.call, TENSOR, DOUBLE), TTPU_BF16);
  x->dtype = TTPU_F64;
  CHECK_INT(op_result_type(&f.call, TENSOR, COMPLEX), TTPU_C128);
  hlo_free(f.h);
}

int main(void) {
  RUN(rows);
  RUN(descriptions);
  RUN(literals);
  RUN(constant_scalars);
  RUN(runtime_scalars);
  RUN(random_state);
  RUN(results);
  RUN(promotion);
  return check_end();
}
