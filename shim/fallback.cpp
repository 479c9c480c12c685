// fallback.cpp: operators without a lowering. PyTorch's decomposition is registered on first sight (the Python package
// knows them); an operator without one runs on CPU PyTorch, with one warning an operator and a counter.
#include <ATen/Functions.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <set>

#include "shim.h"

namespace ttpu {

namespace {

enum Policy { WARN = 0, ERROR = 1, SILENT = 2 };
std::atomic<int> policy{WARN};
std::atomic<int (*)(const char *)> hook{nullptr};
std::mutex mutex;
std::map<std::string, int64_t> counts;
std::set<std::string> asked;

std::string text_of(const c10::OperatorName &name) {
  return name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
}

// True when a decomposition was registered by this very call: the operator is dispatched again.
bool decomposes(const std::string &name) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!asked.insert(name).second) return false;
  }
  auto *ask = hook.load();
  return ask && ask(name.c_str());
}

// The host draws its numbers from the tpu generator's stream: a CPU generator seeded by (seed, offset).
void host_generators(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &schema = op.schema().arguments();
  const size_t base = stack->size() - schema.size();
  for (size_t i = 0; i < schema.size(); i++) {
    if (schema[i].name() != "generator") continue;
    c10::IValue &v = (*stack)[base + i];
    std::optional<at::Generator> given;
    if (v.isGenerator()) given = v.toGenerator();
    if (given && given->device().is_cpu()) continue;
    const auto [seed, offset] = draw(given, given ? given->device().index() : current_device(), 1);
    at::Generator host = at::detail::createCPUGenerator(seed * 0x9e3779b97f4a7c15u + offset);
    v = host;
  }
}

void boxed_fallback(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
  const std::string name = text_of(op.operator_name());
  if (decomposes(name)) return op.callBoxed(stack);
  fallback(op, stack);
}

}  // namespace

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const std::string name = text_of(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(policy != ERROR, name, " has no lowering for these arguments on the tpu device and the host "
                              "fallback is off. torchtpu.set_fallback(\"warn\") runs it on the CPU; docs/operators.md lists "
                              "what runs natively.");
  bool first;
  {
    std::lock_guard<std::mutex> lock(mutex);
    first = counts[name]++ == 0;
  }
  if (first && policy == WARN)
    TORCH_WARN(name, " runs on the CPU: the tpu device has no lowering for it. Each call copies its operands to the host "
               "and back. torchtpu.set_fallback(\"error\") makes this an error, \"silent\" hides it.");
  host_generators(op, stack);
  at::native::cpu_fallback(op, stack);
}

void register_fallback() {
  static auto *library = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

}  // namespace ttpu

extern "C" {
TTPU_API void ttpu_shim_set_fallback(int policy) { ttpu::policy = policy; }
TTPU_API int ttpu_shim_get_fallback(void) { return ttpu::policy; }
TTPU_API void ttpu_shim_set_fallback_hook(int (*hook)(const char *)) { ttpu::hook = hook; }
// {"aten::name": calls, ...}; valid until the next call of the same thread.
TTPU_API const char *ttpu_shim_fallbacks_json(void) {
  thread_local std::string json;
  std::lock_guard<std::mutex> lock(ttpu::mutex);
  json = "{";
  for (const auto &[name, count] : ttpu::counts)
    json += (json.size() > 1 ? ",\"" : "\"") + name + "\":" + std::to_string(count);
  json += "}";
  return json.c_str();
}
}
