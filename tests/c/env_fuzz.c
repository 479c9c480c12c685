/* env_fuzz.c: values of environment variables. The first byte picks the variable, the rest is its text. What is taken
 * lies in the range that the table names; what is refused names the variable and what would be legal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
  if (!condition) abort();
}

static int64_t count_choices(const char *legal) {
  int64_t count = 1;
  for (; *legal; legal++) count += *legal == '|';
  return count;
}

static void accepted(const ttpu_env_row_t *row, const char *text, int64_t value) {
  char number[32];
  switch (row->type) {
    case TTPU_ENV_TEXT:
      require(value == 0);
      break;
    case TTPU_ENV_BOOL:
      require(value == 0 || value == 1);
      break;
    case TTPU_ENV_CHOICE:
      require(value >= 0 && value < count_choices(row->legal));
      break;
    case TTPU_ENV_INT: /* written out it is the text again */
      snprintf(number, sizeof number, "%lld", (long long)value);
      text += strspn(text, "0");
      require(!strcmp(number, *text ? text : "0"));
      break;
    case TTPU_ENV_BYTES:
      require(value >= 0 && value <= 64ll << 40 && strspn(text, "0123456789") > 0);
      break;
  }
}

static void try(ttpu_env_e variable, const char *text) {
  const ttpu_env_row_t *row = &ttpu_env_rows[variable];
  int64_t value = -1;
  ttpu_status_t *status = ttpu_env_parse(variable, text, &value);
  if (!status) {
    accepted(row, text, value);
    return;
  }
  require(ttpu_status_code(status) == TTPU_INVALID_ARGUMENT);
  require(strstr(ttpu_status_message(status), row->name) && strstr(ttpu_status_message(status), row->legal));
  ttpu_status_free(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  char *text = malloc(size);
  if (!text) exit(2);
  memcpy(text, data + 1, size - 1);
  text[size - 1] = 0;
  try((ttpu_env_e)(data[0] % TTPU_ENV_COUNT), text);
  /* Bytes alone seldom look like a number: the same, drawn from the letters of numbers. */
  static const char letters[] = "0123456789kKmMgGtT.-+ x";
  for (size_t i = 0; i + 1 < size && i < 24; i++) text[i] = letters[(uint8_t)text[i] % (sizeof letters - 1)];
  text[size - 1 < 24 ? size - 1 : 24] = 0;
  try(TTPU_ENV_CACHE_BYTES, text);
  try(TTPU_ENV_CPU_DEVICES, text);
  free(text);
  return 0;
}
