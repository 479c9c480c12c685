/* fake_plugin.h: what the fake PJRT plugin exports beside GetPjrtApi; tests find these with dlsym.
 *
 * It compiles any StableHLO text and "runs" it: outputs are zeros of the types that @main declares. What it checks, it
 * checks as strictly as a plugin may: struct sizes, argument types, devices, and donated inputs are gone at once.
 *
 * Configuration is text: "key=value;key=value". Each call replaces all of it and sets the call counts to zero. When the
 * library is loaded it starts from the environment variable FAKE_PLUGIN. Keys, with their defaults:
 *   platform=cpu            platform name
 *   kind=fake               device kind ("TPU v5 lite")
 *   devices=4               devices of a client created without the option cpu_device_count
 *   options=1               0: client creation refuses options
 *   major=0 minor=114       API version                                  | read by GetPjrtApi,
 *   slots=all               length of the function table                 | so before the plugin
 *   omit=NAME,NAME          functions whose slot is empty                | is first loaded
 *   fail=NAME@N:CODE        the Nth call from now of NAME fails with status CODE (13); "N+": that one and all later
 *   consume=0               1: an execute that fails has consumed its donated inputs first
 *   async_fail=N            the Nth execute returns, and its outputs carry an error; "N+" as above
 *   keep=1                  0: non_donatable_input_indices are ignored
 *   delay_us=0              how long an execute keeps its device busy
 *   memory=0                bytes of a device, 0: no limit; beyond it RESOURCE_EXHAUSTED
 */
#ifndef TTPU_TESTS_FAKE_PLUGIN_H_
#define TTPU_TESTS_FAKE_PLUGIN_H_

#include <stdint.h>

/* False, with the configuration unchanged, when |text| has an unknown key. */
typedef int (*fake_plugin_configure_t)(const char *text);
/* Calls of function |name| since the last configuration. */
typedef int64_t (*fake_plugin_calls_t)(const char *name);
/* Objects made and not yet destroyed: clients, buffers, executables, events, errors. */
typedef int64_t (*fake_plugin_live_t)(void);

#endif /* TTPU_TESTS_FAKE_PLUGIN_H_ */
