/* file.h: the bytes of one cache file, made and read without any input or output.
 *
 * A file is a header of 64 bytes, a label of one line for people, and the payload. All numbers are little-endian:
 *    0 magic "TORCHTPU"   8 format   12 kind   16 key   32 payload size   40 label size   44 zero   48 checksum
 * The checksum covers all bytes but itself. A file may come from anywhere: the parser trusts nothing in it.
 */
#ifndef TTPU_COMPILE_FILE_H_
#define TTPU_COMPILE_FILE_H_

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* Goes up whenever the bytes of a file, the hash, or the meaning of a payload or key changes. It joins every key, so
 * versions of this library share a folder and never see each other's files. */
enum { TTPU_FILE_FORMAT = 1, TTPU_FILE_HEADER = 64, TTPU_FILE_LABEL = 240 };

typedef enum { TTPU_FILE_PROGRAM = 1, TTPU_FILE_NOTE = 2 } ttpu_file_kind_e;

typedef struct {
  ttpu_file_kind_e kind;
  ttpu_hash_t key;
  const char *label; /* no NUL at its end */
  size_t label_size; /* at most TTPU_FILE_LABEL */
  const char *payload;
  size_t payload_size;
} ttpu_file_t;

/* The header that goes in front of |file|'s label and payload. */
void ttpu_file_header(const ttpu_file_t *file, unsigned char out_header[TTPU_FILE_HEADER]);
/* Fills |out_file|, which points into |data|. Returns NULL, or why this is not a whole file of our format. */
const char *ttpu_file_parse(const void *data, size_t size, ttpu_file_t *out_file);

#endif /* TTPU_COMPILE_FILE_H_ */
