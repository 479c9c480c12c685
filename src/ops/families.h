/* families.h: declares the function of every row of ops.def. A function that serves several rows is declared as often,
 * which C allows. */
#ifndef TTPU_OPS_FAMILIES_H_
#define TTPU_OPS_FAMILIES_H_

#include "ops/ops.h"

#define OP(id, aten, function, ...) void op_emit_##function(hlo_t *h, const op_call_t *c);
#define OPW(id, aten, function, ...) void op_emit_##function(hlo_t *h, const op_call_t *c);
#include "ops/ops.def"
#undef OP
#undef OPW

#endif /* TTPU_OPS_FAMILIES_H_ */
