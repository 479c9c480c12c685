/* dtype.h: element types, PyTorch's promotion between them, and shapes. Pure functions over dtype.def. */
#ifndef TTPU_GRAPH_DTYPE_H_
#define TTPU_GRAPH_DTYPE_H_

#include <stdbool.h>
#include <stdint.h>

enum { TTPU_MAX_RANK = 64 }; /* PyTorch's own limit */

typedef enum {
  TTPU_DTYPE_NONE = 0,
#define DTYPE(name, bytes, kind, stablehlo, pjrt, torch, text) TTPU_##name,
#include "graph/dtype.def"
#undef DTYPE
  TTPU_DTYPE_COUNT
} ttpu_dtype_e;

/* Visible outside the library: the shim speaks of the same types. */
#pragma GCC visibility push(default)

int64_t ttpu_dtype_bytes(ttpu_dtype_e dtype);
/* 'b', 'u', 'i', 'f' or 'c'; 0 for TTPU_DTYPE_NONE. */
char ttpu_dtype_kind(ttpu_dtype_e dtype);
const char *ttpu_dtype_stablehlo(ttpu_dtype_e dtype);
const char *ttpu_dtype_text(ttpu_dtype_e dtype);
int ttpu_dtype_pjrt(ttpu_dtype_e dtype);
int ttpu_dtype_torch(ttpu_dtype_e dtype);
/* NONE when PyTorch's |scalar_type| (c10::ScalarType) has no counterpart. */
ttpu_dtype_e ttpu_dtype_from_torch(int scalar_type);

static inline bool ttpu_dtype_is_int(ttpu_dtype_e d) { return ttpu_dtype_kind(d) == 'i' || ttpu_dtype_kind(d) == 'u'; }
static inline bool ttpu_dtype_is_float(ttpu_dtype_e d) { return ttpu_dtype_kind(d) == 'f'; }
static inline bool ttpu_dtype_is_complex(ttpu_dtype_e d) { return ttpu_dtype_kind(d) == 'c'; }

/* torch.promote_types: the smallest type that holds both. */
ttpu_dtype_e ttpu_dtype_promote(ttpu_dtype_e a, ttpu_dtype_e b);
/* The real type of a complex one (C64 -> F32), else |dtype|; and back. */
ttpu_dtype_e ttpu_dtype_real(ttpu_dtype_e dtype);
ttpu_dtype_e ttpu_dtype_complex(ttpu_dtype_e dtype);
/* What CPU PyTorch accumulates in: F32 for half types, else |dtype|. */
ttpu_dtype_e ttpu_dtype_accumulate(ttpu_dtype_e dtype);

/* Product of |dims|; 1 for rank 0. */
int64_t ttpu_dims_numel(int rank, const int64_t *dims);

#pragma GCC visibility pop

#endif /* TTPU_GRAPH_DTYPE_H_ */
