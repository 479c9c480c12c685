/* strided_copy.h: strided copies between host arrays, for views that are cut out after the transfer. */
#ifndef TTPU_RUNTIME_STRIDED_COPY_H_
#define TTPU_RUNTIME_STRIDED_COPY_H_

#include <stdint.h>

/* Copies elements of |unit| bytes: to[offsets by to_strides] = from[offsets by from_strides], over |dims|. Strides in
 * elements. */
void ttpu_strided_copy(int64_t unit, int rank, const int64_t *dims, char *to, const int64_t *to_strides, const char *from,
                       const int64_t *from_strides);

#endif /* TTPU_RUNTIME_STRIDED_COPY_H_ */
