/* view.h: argument numbers of tpu::read and tpu::write, shared by the recorder and the lowering. */
#ifndef TTPU_OPS_VIEW_H_
#define TTPU_OPS_VIEW_H_

enum {
  VIEW_BASE = 0,         /* tensor */
  VIEW_VALUE = 1,        /* tensor, write only */
  VIEW_GATHER = 2,       /* bool: explicit element indices */
  VIEW_WHOLE = 3,        /* bool: the slice is the whole base */
  VIEW_MEMORY_ORDER = 4, /* int[]: base dims by falling stride; empty when that is their order */
  VIEW_FACTORS = 5,      /* int[]: ttpu_view_plan_t */
  VIEW_LENGTHS = 6,
  VIEW_STEPS = 7,
  VIEW_FACTOR_OF = 8,
  VIEW_DIM = 9,
  VIEW_SIZES = 10,       /* int[]: the view */
  VIEW_STRIDES = 11,
  VIEW_STARTS = 12,      /* scalars: |first| is the first of VIEW_FACTORS' count parameters */
  VIEW_ARG_COUNT = 13
};

#endif /* TTPU_OPS_VIEW_H_ */
