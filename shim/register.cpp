// register.cpp: the shim's one entry point. Everything is registered from here, not from static initialisers, so that a
// failure is an error text and not the end of the process.
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>
#include <torch/version.h>

#include "shim.h"

namespace ttpu {
void register_generator();
std::vector<std::string> &registered_overloads();
}  // namespace ttpu

extern "C" {

TTPU_API const char *ttpu_shim_torch_version(void) { return TORCH_VERSION; }

// NULL on success, else why not. Once a process.
TTPU_API const char *ttpu_shim_register(void) {
  static std::string error;
  static bool done = false;
  if (done) return nullptr;
  try {
    c10::SetAllocator(ttpu::kTpu, ttpu::allocator());
    ttpu::register_generator();
    ttpu::register_tensor();
    ttpu::register_dynamic();
    ttpu::register_boxed();
    ttpu::register_fallback();
    ttpu::register_autocast();
    done = true;
    return nullptr;
  } catch (const std::exception &e) {
    error = e.what();
    return error.c_str();
  }
}

// Registered overloads, one a line; for the documentation.
TTPU_API const char *ttpu_shim_overloads(void) {
  static std::string text;
  text.clear();
  for (const auto &name : ttpu::registered_overloads()) text += name + "\n";
  return text.c_str();
}
}
