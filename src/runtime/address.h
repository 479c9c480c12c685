/* address.h: unique address ranges for storages, without memory behind them.
 *
 * Libraries tell by data_ptr whether tensors share memory, so two living storages never overlap. Ranges come from one
 * reservation without access rights: a stray read or write faults instead of corrupting the heap. Power-of-two size
 * classes with free lists. The runtime's lock guards it.
 */
#ifndef TTPU_RUNTIME_ADDRESS_H_
#define TTPU_RUNTIME_ADDRESS_H_

#include <stdint.h>

#include "base/status.h"

enum { TTPU_ADDRESS_CLASSES = 48 };

typedef struct {
  uintptr_t base, next, end;
  struct {
    uintptr_t *items;
    int64_t count, capacity;
  } free[TTPU_ADDRESS_CLASSES];
} ttpu_addresses_t;

/* A range of at least |bytes|; *out_address is 0 when bytes is 0. */
TTPU_MUST_USE ttpu_status_t *ttpu_address_take(ttpu_addresses_t *addresses, int64_t bytes, uintptr_t *out_address);
void ttpu_address_give(ttpu_addresses_t *addresses, uintptr_t address, int64_t bytes);
void ttpu_address_deinit(ttpu_addresses_t *addresses);

#endif /* TTPU_RUNTIME_ADDRESS_H_ */
