/* address.c: see address.h. */
#include "runtime/address.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"

enum { SMALLEST = 6 }; /* 64 bytes, as PyTorch aligns */

/* 32 TiB of addresses where the system gives that much, else less. */
static ttpu_status_t *reserve(ttpu_addresses_t *addresses) {
  for (int bits = 45; bits >= 34; bits--) {
    const size_t bytes = (size_t)1 << bits;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    madvise(base, bytes, MADV_DONTFORK); /* a child has no device: its copy of a tensor must not look alive */
    addresses->base = addresses->next = (uintptr_t)base;
    addresses->end = addresses->base + bytes;
    return NULL;
  }
  return TTPU_ERROR(RESOURCE_EXHAUSTED, "cannot reserve address space for tensors: %s", strerror(errno));
}

static int size_class(int64_t bytes) {
  int bits = SMALLEST;
  while (bits < 62 && (int64_t)1 << bits < bytes) bits++;
  return bits;
}

ttpu_status_t *ttpu_address_take(ttpu_addresses_t *addresses, int64_t bytes, uintptr_t *out_address) {
  *out_address = 0;
  if (bytes <= 0) return NULL;
  if (!addresses->base) TTPU_TRY(reserve(addresses));
  const int bits = size_class(bytes);
  if (bits >= TTPU_ADDRESS_CLASSES)
    return TTPU_ERROR(RESOURCE_EXHAUSTED, "a tensor of %lld bytes is larger than any device", (long long)bytes);
  if (addresses->free[bits].count) {
    *out_address = addresses->free[bits].items[--addresses->free[bits].count];
    return NULL;
  }
  const uintptr_t size = (uintptr_t)1 << bits;
  if (addresses->end - addresses->next < size)
    return TTPU_ERROR(RESOURCE_EXHAUSTED, "the address space for tensors is used up (asked for %lld bytes)",
                      (long long)bytes);
  *out_address = addresses->next;
  addresses->next += size;
  return NULL;
}

void ttpu_address_give(ttpu_addresses_t *addresses, uintptr_t address, int64_t bytes) {
  if (!address) return;
  const int bits = size_class(bytes);
  int64_t *capacity = &addresses->free[bits].capacity;
  if (addresses->free[bits].count == *capacity) {
    const int64_t larger = *capacity ? *capacity * 2 : 64;
    uintptr_t *items = ttpu_alloc_resize(addresses->free[bits].items, (size_t)larger * sizeof *items);
    if (!items) return; /* the range is lost; there are 32 TiB of them */
    addresses->free[bits].items = items;
    *capacity = larger;
  }
  addresses->free[bits].items[addresses->free[bits].count++] = address;
}

void ttpu_address_deinit(ttpu_addresses_t *addresses) {
  for (int i = 0; i < TTPU_ADDRESS_CLASSES; i++) ttpu_free(addresses->free[i].items);
  if (addresses->base) munmap((void *)addresses->base, addresses->end - addresses->base);
  *addresses = (ttpu_addresses_t){0};
}
