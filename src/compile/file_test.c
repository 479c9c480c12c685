/* file_test.c: what the parser takes is what was written, byte for byte; every other byte string is refused. */
#include "compile/file.h"

#include <stdlib.h>

#include "check.h"

enum { PAYLOAD = 300 };

static const char label[] = "cpu: first sight";
static const ttpu_hash_t key = {0x0123456789abcdef, 0xfedcba9876543210};

static size_t make(unsigned char *out, ttpu_file_kind_e kind) {
  char payload[PAYLOAD];
  for (int i = 0; i < PAYLOAD; i++) payload[i] = (char)(i * 7);
  const ttpu_file_t file = {kind, key, label, strlen(label), payload, PAYLOAD};
  ttpu_file_header(&file, out);
  memcpy(out + TTPU_FILE_HEADER, label, strlen(label));
  memcpy(out + TTPU_FILE_HEADER + strlen(label), payload, PAYLOAD);
  return TTPU_FILE_HEADER + strlen(label) + PAYLOAD;
}

/* Parses an exact copy on the heap, so that the address sanitizer sees any read past the end. */
static const char *parse(const unsigned char *data, size_t size, ttpu_file_t *out_file) {
  unsigned char *copy = malloc(size + !size);
  memcpy(copy, data, size);
  const char *why = ttpu_file_parse(copy, size, out_file);
  free(copy);
  return why;
}

TEST(round_trip) {
  unsigned char data[1024];
  ttpu_file_t file;
  for (int kind = TTPU_FILE_PROGRAM; kind <= TTPU_FILE_NOTE; kind++) {
    const size_t size = make(data, (ttpu_file_kind_e)kind);
    CHECK(!ttpu_file_parse(data, size, &file));
    CHECK_INT(file.kind, kind);
    CHECK(ttpu_hash_equal(file.key, key));
    CHECK(file.label_size == strlen(label) && !memcmp(file.label, label, file.label_size));
    CHECK_INT(file.payload_size, PAYLOAD);
    CHECK((unsigned char)file.payload[299] == (299 * 7 & 255));
  }
  const ttpu_file_t empty = {TTPU_FILE_NOTE, key, "", 0, "", 0};
  ttpu_file_header(&empty, data);
  CHECK(!ttpu_file_parse(data, TTPU_FILE_HEADER, &file) && !file.payload_size && !file.label_size);
}

/* The layout is a contract with files of earlier runs: it may change only together with the format number. */
TEST(the_bytes_are_fixed) {
  unsigned char data[1024];
  make(data, TTPU_FILE_PROGRAM);
  static const unsigned char head[48] = {
      'T',  'O',  'R',  'C',  'H',  'T',  'P',  'U',  1,    0,    0,    0,    1, 0, 0, 0, 0xef, 0xcd, 0xab, 0x89,
      0x67, 0x45, 0x23, 0x01, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 44, 1, 0, 0, 0,    0,    0,    0,
      16};
  CHECK_INT(TTPU_FILE_FORMAT, 1);
  CHECK(!memcmp(data, head, sizeof head));
}

TEST(every_shorter_file_is_refused) {
  unsigned char data[1024];
  ttpu_file_t file;
  const size_t size = make(data, TTPU_FILE_PROGRAM);
  for (size_t n = 0; n < size; n++) CHECK(parse(data, n, &file) && !file.payload);
  data[size] = 0;
  CHECK(parse(data, size + 1, &file));
}

TEST(every_changed_bit_is_refused) {
  unsigned char data[1024];
  ttpu_file_t file;
  const size_t size = make(data, TTPU_FILE_PROGRAM);
  for (size_t i = 0; i < size * 8; i++) {
    data[i / 8] ^= (unsigned char)(1 << i % 8);
    CHECK(parse(data, size, &file) && !file.payload);
    data[i / 8] ^= (unsigned char)(1 << i % 8);
  }
  CHECK(!ttpu_file_parse(data, size, &file));
}

TEST(the_reason_is_told) {
  unsigned char data[1024];
  ttpu_file_t file;
  const size_t size = make(data, TTPU_FILE_PROGRAM);
  CHECK_STR(ttpu_file_parse(data, 10, &file), "shorter than a header");
  CHECK_STR(ttpu_file_parse(data, size - 1, &file), "truncated or too long");
  data[size - 1] ^= 1;
  CHECK_STR(ttpu_file_parse(data, size, &file), "a wrong checksum");
  data[12] = 3;
  CHECK_STR(ttpu_file_parse(data, size, &file), "an unknown kind");
  data[8] = TTPU_FILE_FORMAT + 1;
  CHECK_STR(ttpu_file_parse(data, size, &file), "another format");
  data[0] = 't';
  CHECK_STR(ttpu_file_parse(data, size, &file), "not a torchtpu cache file");
}

/* Sizes that overflow when added up must not pass for the size of the file. */
TEST(huge_sizes) {
  unsigned char data[1024];
  ttpu_file_t file;
  const size_t size = make(data, TTPU_FILE_PROGRAM);
  const uint32_t labels[] = {0, 1, 240, 241, 0x7fffffff, 0xffffffff};
  const uint64_t payloads[] = {0, size, UINT64_MAX, UINT64_MAX - 63, 1ull << 63, UINT64_MAX - 0xffffffff};
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 6; k++) {
      memcpy(data + 40, &labels[i], 4);
      memcpy(data + 32, &payloads[k], 8);
      CHECK(parse(data, size, &file));
    }
  for (size_t rest = 0; rest < 20; rest++) { /* a label beyond the end, and a payload of minus what is too much */
    const uint32_t long_label = 200;
    const uint64_t negative = rest - long_label;
    memcpy(data + 40, &long_label, 4);
    memcpy(data + 32, &negative, 8);
    CHECK(parse(data, TTPU_FILE_HEADER + rest, &file));
  }
}

int main(void) {
  RUN(round_trip);
  RUN(the_bytes_are_fixed);
  RUN(every_shorter_file_is_refused);
  RUN(every_changed_bit_is_refused);
  RUN(the_reason_is_told);
  RUN(huge_sizes);
  return check_end();
}
