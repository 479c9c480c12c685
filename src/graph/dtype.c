/* dtype.c: see dtype.h. */
#include "graph/dtype.h"

#include <stddef.h>

static const struct {
  int64_t bytes;
  char kind;
  const char *stablehlo, *text;
  int pjrt, torch;
} table[TTPU_DTYPE_COUNT] = {
#define DTYPE(name, bytes, kind, stablehlo, pjrt, torch, text) [TTPU_##name] = {bytes, kind, stablehlo, text, pjrt, torch},
#include "graph/dtype.def"
#undef DTYPE
};

int64_t ttpu_dtype_bytes(ttpu_dtype_e dtype) { return table[dtype].bytes; }
char ttpu_dtype_kind(ttpu_dtype_e dtype) { return table[dtype].kind; }
const char *ttpu_dtype_stablehlo(ttpu_dtype_e dtype) { return dtype ? table[dtype].stablehlo : "none"; }
const char *ttpu_dtype_text(ttpu_dtype_e dtype) { return dtype ? table[dtype].text : "none"; }
int ttpu_dtype_pjrt(ttpu_dtype_e dtype) { return table[dtype].pjrt; }
int ttpu_dtype_torch(ttpu_dtype_e dtype) { return table[dtype].torch; }

ttpu_dtype_e ttpu_dtype_from_torch(int scalar_type) {
  switch (scalar_type) {
#define DTYPE(name, bytes, kind, stablehlo, pjrt, torch, text) \
  case torch:                                                  \
    return TTPU_##name;
#include "graph/dtype.def"
#undef DTYPE
    default:
      return TTPU_DTYPE_NONE;
  }
}

ttpu_dtype_e ttpu_dtype_real(ttpu_dtype_e dtype) {
  return dtype == TTPU_C64 ? TTPU_F32 : dtype == TTPU_C128 ? TTPU_F64 : dtype;
}

ttpu_dtype_e ttpu_dtype_complex(ttpu_dtype_e dtype) {
  if (ttpu_dtype_kind(dtype) == 'c') return dtype;
  return dtype == TTPU_F64 ? TTPU_C128 : TTPU_C64;
}

ttpu_dtype_e ttpu_dtype_accumulate(ttpu_dtype_e dtype) {
  return ttpu_dtype_kind(dtype) == 'f' && ttpu_dtype_bytes(dtype) < 4 ? TTPU_F32 : dtype;
}

/* PyTorch's lattice: bool < integers < floats < complex; between equal kinds the wider wins; an unsigned and a
 * signed integer need the next signed width; float16 with bfloat16, or two different 8-bit floats, need float32. */
ttpu_dtype_e ttpu_dtype_promote(ttpu_dtype_e a, ttpu_dtype_e b) {
  if (a == b || b == TTPU_DTYPE_NONE) return a;
  if (a == TTPU_DTYPE_NONE) return b;
  static const char order[] = "buifc";
  int ka = 0, kb = 0;
  while (order[ka] != table[a].kind) ka++;
  while (order[kb] != table[b].kind) kb++;
  if (ka > kb) return ttpu_dtype_promote(b, a);
  const int64_t na = table[a].bytes, nb = table[b].bytes;
  switch (table[b].kind) {
    case 'u':
      return ka == 0 || nb >= na ? b : a;
    case 'i':
      if (ka == 0) return b;
      if (table[a].kind == 'i') return na > nb ? a : b;
      if (nb > na) return b;
      return na == 1 ? TTPU_I16 : na == 2 ? TTPU_I32 : TTPU_I64;
    case 'f':
      if (ka < 3) return b;
      if (na == nb) return TTPU_F32;
      return na > nb ? a : b;
    default: {
      if (table[a].kind == 'c') return TTPU_C128;
      const ttpu_dtype_e real = table[a].kind == 'f' ? ttpu_dtype_promote(a, ttpu_dtype_real(b)) : ttpu_dtype_real(b);
      return ttpu_dtype_complex(real);
    }
  }
}

int64_t ttpu_dims_numel(int rank, const int64_t *dims) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[i];
  return n;
}
