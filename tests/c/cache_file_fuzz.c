/* cache_file_fuzz.c: the parser of cache files. Three ways in, as random bytes never guess a checksum: the bytes as they
 * are, the bytes with their checksum put right (so that the sizes in the header are what is attacked), and a good file
 * made of the bytes, whole and with one byte changed.
 */
#include <stdlib.h>
#include <string.h>

#include "compile/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
  if (!condition) abort();
}

/* Accepted means: inside the data, nothing left over, and written again it is the same file. */
static int parse(const uint8_t *data, size_t size) {
  ttpu_file_t file;
  const char *why = ttpu_file_parse(data, size, &file);
  if (why) {
    require(*why && !file.payload && !file.label && !file.payload_size);
    return 0;
  }
  unsigned char header[TTPU_FILE_HEADER];
  ttpu_file_header(&file, header);
  require(!memcmp(header, data, TTPU_FILE_HEADER));
  require(file.label == (const char *)data + TTPU_FILE_HEADER && file.label_size <= TTPU_FILE_LABEL);
  require(file.payload == file.label + file.label_size);
  require(TTPU_FILE_HEADER + file.label_size + file.payload_size == size);
  return 1;
}

/* |size| exact bytes on the heap, for the address sanitizer. */
static uint8_t *copy_of(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) exit(2);
  if (size) memcpy(copy, data, size);
  return copy;
}

static void with_right_checksum(const uint8_t *data, size_t size) {
  if (size < TTPU_FILE_HEADER) return;
  uint8_t *copy = copy_of(data, size);
  uint32_t label_size;
  memcpy(&label_size, copy + 40, 4);
  if (label_size > size - TTPU_FILE_HEADER) label_size = (uint32_t)(size - TTPU_FILE_HEADER);
  const ttpu_file_t file = {(ttpu_file_kind_e)(1 + (copy[12] & 1)), {copy[16], copy[24]},
                            (char *)copy + TTPU_FILE_HEADER,        label_size,
                            (char *)copy + TTPU_FILE_HEADER + label_size, size - TTPU_FILE_HEADER - label_size};
  unsigned char header[TTPU_FILE_HEADER];
  ttpu_file_header(&file, header);
  memcpy(copy, header, 32);
  memcpy(copy + 44, header + 44, 20); /* the sizes stay what the fuzzer made them */
  const int sizes_agree = !memcmp(copy, header, TTPU_FILE_HEADER) && label_size <= TTPU_FILE_LABEL;
  require(parse(copy, size) == sizes_agree);
  free(copy);
}

static void whole_and_changed(const uint8_t *data, size_t size) {
  if (size < 8) return;
  const size_t label_size = data[0] % (size - 7) % (TTPU_FILE_LABEL + 1), payload_size = size - 8 - label_size + 1;
  const size_t total = TTPU_FILE_HEADER + label_size + payload_size;
  uint8_t *bytes = malloc(total);
  if (!bytes) exit(2);
  memcpy(bytes + TTPU_FILE_HEADER, data + 7, label_size + payload_size);
  const ttpu_file_t file = {(ttpu_file_kind_e)(1 + (data[1] & 1)), {data[2], data[3]},
                            (char *)bytes + TTPU_FILE_HEADER,      label_size,
                            (char *)bytes + TTPU_FILE_HEADER + label_size, payload_size};
  ttpu_file_header(&file, bytes);
  require(parse(bytes, total));
  const size_t at = (data[4] | (size_t)data[5] << 8) % total;
  const uint8_t change = data[6] ? data[6] : 1;
  bytes[at] ^= change;
  require(!parse(bytes, total));
  bytes[at] ^= change;
  uint8_t *shorter = copy_of(bytes, at);
  require(!parse(shorter, at));
  free(shorter);
  free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  parse(data, size);
  with_right_checksum(data, size);
  whole_and_changed(data, size);
  return 0;
}
