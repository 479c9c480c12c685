/* file.c: see file.h. */
#include "compile/file.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie in memory");

static const char magic[8] = {'T', 'O', 'R', 'C', 'H', 'T', 'P', 'U'};

typedef struct {
  char magic[8];
  uint32_t format, kind;
  ttpu_hash_t key;
  uint64_t payload_size;
  uint32_t label_size, zero;
  ttpu_hash_t checksum;
} header_t;

_Static_assert(sizeof(header_t) == TTPU_FILE_HEADER, "the header has no holes");

static ttpu_hash_t checksum(const header_t *header, const ttpu_file_t *file) {
  const ttpu_hash_t head = ttpu_hash_bytes(header, offsetof(header_t, checksum));
  const ttpu_hash_t label = ttpu_hash_bytes(file->label, file->label_size);
  const ttpu_hash_t payload = ttpu_hash_bytes(file->payload, file->payload_size);
  const uint64_t words[] = {head.lo, head.hi, label.lo, label.hi, payload.lo, payload.hi};
  return ttpu_hash_words(words, 6);
}

void ttpu_file_header(const ttpu_file_t *file, unsigned char out_header[TTPU_FILE_HEADER]) {
  header_t header = {.format = TTPU_FILE_FORMAT,
                     .kind = (uint32_t)file->kind,
                     .key = file->key,
                     .payload_size = file->payload_size,
                     .label_size = (uint32_t)file->label_size};
  memcpy(header.magic, magic, sizeof magic);
  header.checksum = checksum(&header, file);
  memcpy(out_header, &header, sizeof header);
}

const char *ttpu_file_parse(const void *data, size_t size, ttpu_file_t *out_file) {
  header_t header;
  *out_file = (ttpu_file_t){0};
  if (size < sizeof header) return "shorter than a header";
  memcpy(&header, data, sizeof header);
  if (memcmp(header.magic, magic, sizeof magic)) return "not a torchtpu cache file";
  if (header.format != TTPU_FILE_FORMAT) return "another format";
  if (header.kind != TTPU_FILE_PROGRAM && header.kind != TTPU_FILE_NOTE) return "an unknown kind";
  const size_t rest = size - sizeof header;
  if (header.label_size > TTPU_FILE_LABEL || header.label_size > rest ||
      header.payload_size != rest - header.label_size)
    return "truncated or too long";
  const char *body = (const char *)data + sizeof header;
  const ttpu_file_t file = {(ttpu_file_kind_e)header.kind, header.key,         body,
                            header.label_size,             body + header.label_size, rest - header.label_size};
  if (!ttpu_hash_equal(header.checksum, checksum(&header, &file))) return "a wrong checksum";
  *out_file = file;
  return NULL;
}
