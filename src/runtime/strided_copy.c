/* strided_copy.c: see strided_copy.h. */
#include "runtime/strided_copy.h"

#include <string.h>

void ttpu_strided_copy(int64_t unit, int rank, const int64_t *dims, char *to, const int64_t *to_strides, const char *from,
                       const int64_t *from_strides) {
  if (rank == 0) {
    memcpy(to, from, (size_t)unit);
    return;
  }
  if (rank == 1 && to_strides[0] == 1 && from_strides[0] == 1) {
    memcpy(to, from, (size_t)(unit * dims[0]));
    return;
  }
  for (int64_t i = 0; i < dims[0]; i++)
    ttpu_strided_copy(unit, rank - 1, dims + 1, to + i * to_strides[0] * unit, to_strides + 1,
                      from + i * from_strides[0] * unit, from_strides + 1);
}
