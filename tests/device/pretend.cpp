// The CUDA device of a CPU build of torch: CUDA's dispatch key, allocator, guard and hooks over the host's memory.
// An operator on its tensors first passes the device checks that a GPU would make, and is then computed by the CPU's
// kernel on the same memory. `pretend.py` builds and loads this file.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>

using at::Tensor;
using c10::IValue;
using Stack = std::vector<IValue>;

namespace {

const c10::Device kDevice(c10::kCUDA, 0);

// --- memory ---

std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

// Keeps a storage alive from within another one over the same memory; on the device its bytes are counted.
struct Held {
  c10::Storage storage;
  int64_t counted;

  Held(const c10::Storage& held, bool is_counted) : storage(held), counted(is_counted ? held.nbytes() : 0) {
    const int64_t now = live_bytes += counted;
    for (int64_t peak = peak_bytes; now > peak && !peak_bytes.compare_exchange_weak(peak, now);) {
    }
  }
  ~Held() { live_bytes -= counted; }
};

c10::DataPtr seen_from(const c10::Device& device, const c10::Storage& storage) {
  auto* held = new Held(storage, device.is_cuda());
  return {held->storage.mutable_data(), held, [](void* context) { delete static_cast<Held*>(context); }, device};
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::Storage host(c10::Storage::use_byte_size_t(), bytes, c10::GetAllocator(c10::kCPU), false);
    if (bytes > 0) std::memset(host.mutable_data(), 0xFF, bytes);  // NaN in every float format, -1 in integers
    return seen_from(kDevice, host);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
} allocator;

// The same memory as a tensor of the other device.
Tensor relabelled(const Tensor& tensor, c10::DispatchKey key) {
  const bool to_device = key == c10::DispatchKey::CUDA;
  c10::Allocator* own = to_device ? &allocator : c10::GetAllocator(c10::kCPU);
  auto memory = seen_from(to_device ? kDevice : c10::Device(c10::kCPU), tensor.storage());
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(memory), own, true);
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return made;
}

bool on_device(const Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

Tensor to_host(const Tensor& tensor) {
  return on_device(tensor) ? relabelled(tensor, c10::DispatchKey::CPU) : tensor;
}

Tensor to_device(const Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() ? relabelled(tensor, c10::DispatchKey::CUDA) : tensor;
}

// --- what a GPU refuses, and when the host waits for it ---

struct Rule {
  bool takes_host_scalars;  // tensors of no dimension may lie on the CPU
};
std::unordered_map<std::string, Rule> rules;  // of each operator that has a CUDA kernel
void (*wait_listener)(const char*) = nullptr;

std::vector<Tensor> tensors_of(const IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<Tensor> found;
  if (value.isOptionalTensorList())
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector())
      if (each.has_value()) found.push_back(*each);
  return found;
}

bool is_indexing(const std::string& name) {
  return name == "aten::index.Tensor_out" || name == "aten::_index_put_impl_";
}

bool may_be_on_host(const std::string& name, size_t place, const Tensor& tensor) {
  if (name == "aten::copy_") return true;
  if (is_indexing(name) && place == 1) return true;  // indices are copied to the device
  return tensor.dim() == 0 && rules.at(name).takes_host_scalars;
}

void check(const std::string& name, const c10::FunctionSchema& schema, const Stack& args) {
  TORCH_CHECK_NOT_IMPLEMENTED(rules.count(name), "Could not run '", name, "' on the pretended 'CUDA' backend");
  for (size_t i = 0; i < args.size(); i++) {
    if (args[i].isGenerator())
      TORCH_CHECK(args[i].toGenerator().device().is_cuda(), "Expected a 'cuda' device type for generator [", name, "]");
    for (const Tensor& tensor : tensors_of(args[i]))
      TORCH_CHECK(
          !tensor.defined() || tensor.is_cuda() || may_be_on_host(name, i, tensor),
          "Expected all tensors to be on the same device, but ", schema.arguments()[i].name(), " is on ",
          tensor.device(), " and others are on cuda:0 [", name, "]");
  }
}

const std::unordered_set<std::string> kWaiting = {
    "aten::_local_scalar_dense", "aten::nonzero",    "aten::masked_select", "aten::equal",
    "aten::_unique2",            "aten::unique_dim", "aten::bincount",      "aten::unique_consecutive",
    "aten::histc",               "aten::repeat_interleave.Tensor"};

// Whether the host waits until the device has come so far: it reads a result, or has its own memory read.
bool waits(const std::string& name, const Stack& args) {
  if (name == "aten::copy_") {
    const Tensor &target = args[0].toTensor(), &source = args[1].toTensor();
    const bool is_queued = target.is_cuda() && args[2].toBool();
    return target.device() != source.device() && source.numel() > 0 && !is_queued;
  }
  if (name != "aten::_index_put_impl_") return kWaiting.count(name) > 0;
  const bool fills = args[2].toTensor().is_cpu() && args[2].toTensor().numel() == 1;  // one number needs no count
  for (const Tensor& index : tensors_of(args[1])) {
    if (!index.defined()) continue;
    if (index.is_cpu() || (index.scalar_type() == at::kBool && !fills)) return true;  // a mask's true places are counted
  }
  return false;
}

// --- operators ---

IValue on_host(const IValue& value) {
  if (value.isTensor()) return to_host(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& each : value.toTensorVector()) list.push_back(to_host(each));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector())
      list.push_back(each.has_value() ? std::optional<Tensor>(to_host(*each)) : std::nullopt);
    return list;
  }
  return value;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// An `out` may have got another size, and with it other memory.
void take_size(const Tensor& tensor, const Tensor& host) {
  if (tensor.sizes() == host.sizes() && tensor.strides() == host.strides()) return;
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(to_device(host).storage());
  impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
}

IValue result(const IValue& value, const c10::Argument& returned, const c10::FunctionSchema& schema, const Stack& args) {
  if (is_written(returned))
    for (size_t i = 0; i < args.size(); i++)
      if (is_written(schema.arguments()[i]) &&
          schema.arguments()[i].alias_info()->beforeSets() == returned.alias_info()->beforeSets())
        return args[i];
  TORCH_CHECK(returned.alias_info() == nullptr, schema.name(), " makes a view, which the pretended device does not know");
  if (value.isTensor()) return to_device(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<Tensor> list;
  for (const Tensor& each : value.toTensorVector()) list.push_back(to_device(each));
  return list;
}

void run(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const std::string name = c10::toString(op.operator_name());
  const Stack args(stack->end() - schema.arguments().size(), stack->end());
  check(name, schema, args);
  if (wait_listener != nullptr && waits(name, args)) wait_listener(name.c_str());
  Stack host;
  for (const IValue& value : args) host.push_back(on_host(value));
  Stack results = host;
  {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    op.callBoxed(&results);
  }
  for (size_t i = 0; i < args.size(); i++)
    if (is_written(schema.arguments()[i]) && args[i].isTensor() && on_device(args[i].toTensor()))
      take_size(args[i].toTensor(), host[i].toTensor());
  stack->resize(stack->size() - args.size());
  for (size_t i = 0; i < results.size(); i++)
    stack->push_back(result(results[i], schema.returns()[i], schema, args));
}

Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
      dtype.value_or(at::get_default_dtype_as_scalartype()), format);
}

Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
      c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::get_default_dtype_as_scalartype()));
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("resize_", TORCH_FN(at::native::resize_));
  m.impl("set_.source_Storage", TORCH_FN(static_cast<Tensor& (*)(Tensor&, at::Storage)>(at::native::set_)));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  for (const char* name : {"copy_", "_fused_sdp_choice"})  // torch's own look for CUDA's kernel in a table
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run>());
}

// --- the device itself ---

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(kDevice); }
};

}  // namespace

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  Allocator* getCUDADeviceAllocator() const override { return &allocator; }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

namespace {
const bool is_registered = (c10::SetAllocator(c10::kCUDA, &allocator), true);
}

// --- for pretend.py ---

#define SHARED extern "C" __attribute__((visibility("default")))

SHARED void pretend_allow(const char* name, bool takes_host_scalars) { rules[name] = {takes_host_scalars}; }
SHARED void pretend_listen(void (*listener)(const char*)) { wait_listener = listener; }
SHARED int64_t pretend_live_bytes() { return live_bytes; }
SHARED int64_t pretend_peak_bytes() { return peak_bytes; }
SHARED void pretend_reset_peak() { peak_bytes = live_bytes.load(); }
