"""``torch.tpu``: what PyTorch users know from ``torch.cuda``, for the tpu device.

Importing it starts nothing. The plugin is loaded by the first function that needs a device, or by the first tensor.
Sizes are bytes. Devices are given as an index, a string, a ``torch.device`` or None for the current one.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from typing import Any

import torch

from . import _load
from ._core import check, lib

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "StreamContext",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

# --- devices ---------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """True when the device can be used: a plugin is installed, or the device is already running. Starts nothing."""
    if _load.in_bad_fork():
        return False
    if lib.ttpu_is_initialized():
        return lib.ttpu_device_count() > 0
    from . import _plugins

    return _plugins.find() is not None


def is_initialized() -> bool:
    """True once the plugin is loaded and its devices exist."""
    return lib.ttpu_is_initialized() and not _load.in_bad_fork()


def init() -> None:
    """Starts the device now. Raises torchtpu.DeviceError when the plugin does not start."""
    _load.initialize()


def _lazy_init() -> None:
    _load.initialize()


def _is_in_bad_fork() -> bool:
    return _load.in_bad_fork()


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # fork_rng and checkpoint look at it
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def device_count() -> int:
    """How many tpu devices this process has. TORCHTPU_CPU_DEVICES sets it for a CPU plugin."""
    if _load.in_bad_fork() or not is_available():
        return 0
    _load.initialize()
    return lib.ttpu_device_count()


def current_device() -> int:
    """Index of the calling thread's current device."""
    _load.initialize()
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: Any) -> None:
    """Makes |device| the calling thread's current one. Raises RuntimeError for one that does not exist."""
    index = _index(device, optional=True)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


def _exchange_device(index: int) -> int:
    return -1 if index < 0 else torch._C._accelerator_exchangeDevice(index)


def _maybe_exchange_device(index: int) -> int:
    return _exchange_device(index)


class device:
    """Context in which |device| is the current one; a negative index or None changes nothing."""

    def __init__(self, device: Any):
        self.idx = _index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_setDeviceIndex(self.prev_idx)


class device_of(device):
    """Context in which the device of tensor |obj| is the current one; nothing changes for a tensor elsewhere."""

    def __init__(self, obj: Any):
        super().__init__(obj.device if getattr(obj, "is_tpu", False) else -1)


def can_device_access_peer(device: Any, peer: Any) -> bool:
    """True when data can be copied between two devices of this process: always."""
    return _index(device) != _index(peer)


def synchronize(device: Any = None) -> None:
    """Starts what is recorded on |device| and waits for it. An error of that work is raised here."""
    check(lib.ttpu_synchronize(_index(device)))


def empty_cache() -> None:
    """Starts what is pending, so that memory held for it is free afterwards. The plugin keeps no cache that we could empty."""
    if is_initialized():
        check(lib.ttpu_synchronize(-1))


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """What is known of a device. |total_memory| is -1 where the plugin does not tell."""

    name: str
    index: int
    platform: str
    platform_version: str
    plugin: str
    total_memory: int
    major: int = 0
    minor: int = 0
    multi_processor_count: int = 1


def get_device_name(device: Any = None) -> str:
    """The device's kind as the plugin names it: "cpu", "TPU v5 lite"."""
    return lib.ttpu_device_kind(_index(device)).decode()


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, platform, plugin and memory of |device|."""
    index = _index(device)
    return DeviceProperties(
        name=get_device_name(index),
        index=index,
        platform=lib.ttpu_platform().decode(),
        platform_version=lib.ttpu_platform_version().decode(),
        plugin=lib.ttpu_plugin_path().decode(),
        total_memory=_memory(index)[2],
    )


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The TPU generation and a minor number: (5, 0) for "TPU v5 lite"; (0, 0) for a CPU plugin."""
    name = get_device_name(device)
    digits = "".join(c for c in name if c.isdigit())[:1]
    return (int(digits), 0) if name.upper().startswith("TPU") and digits else (0, 0)


def _index(device: Any, optional: bool = False) -> int:
    """Index of |device|, checked; the current one for None or no index. |optional| lets None and negatives be -1."""
    _load.initialize()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "tpu":
            raise ValueError(f"Expected a tpu device, but got: {device}")
        device = device.index if device.index is not None else torch._C._accelerator_getDeviceIndex()
    if device is None:
        return -1 if optional else torch._C._accelerator_getDeviceIndex()
    index = int(device)
    if index < 0 and optional:
        return -1
    if not 0 <= index < lib.ttpu_device_count():
        raise RuntimeError(
            f"tpu:{index} does not exist; this process has {lib.ttpu_device_count()} tpu device(s). "
            "TORCHTPU_CPU_DEVICES sets how many the CPU plugin offers."
        )
    return index


# --- streams and events ----------------------------------------------------------------------------------------------


class Stream(torch.Stream):
    """A name for a sequence of work. All streams of a device run in the order of the calls."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any):
        if kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device("tpu", _index(device)), priority=priority)

    def __repr__(self) -> str:
        return f"<torch.tpu.Stream device=tpu:{self.device_index} id={self.stream_id}>"


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class Event(metaclass=_EventType):
    """A mark in the work of a device. Recording one starts what is pending; one with timing also waits for it.

    Makes a ``torch.Event`` of the tpu device, not an object of a class of its own: PyTorch's streams take no subclass.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        _load.initialize()
        if interprocess:
            raise NotImplementedError("events of the tpu device cannot be shared between processes")
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking)


def _ours(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Any = None) -> Stream:
    """The calling thread's stream on |device|."""
    return _ours(torch._C._accelerator_getStream(_index(device)))


def default_stream(device: Any = None) -> Stream:
    """The stream that is current where none was chosen."""
    return Stream(stream_id=0, device_index=_index(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes |stream| and its device current; None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Context in which |stream| is the current one; None changes nothing."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = current_device()
            self._before = current_stream(self.stream.device_index)
            set_stream(self.stream)

    def __exit__(self, *exception: object) -> None:
        if self.stream is not None:
            set_stream(self._before)
            set_device(self._device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """``with torch.tpu.stream(s):`` makes |s| current in the block."""
    return StreamContext(stream)


# --- memory ----------------------------------------------------------------------------------------------------------


def _memory(index: int) -> list[int]:
    out = (ctypes.c_int64 * 8)()
    check(lib.ttpu_memory_stats(index, out))
    return list(out)


def memory_allocated(device: Any = None) -> int:
    """Bytes that living tensors hold on |device| now; pending results are not counted."""
    return _memory(_index(device))[0]


def max_memory_allocated(device: Any = None) -> int:
    """The highest memory_allocated since the start or reset_peak_memory_stats."""
    return _memory(_index(device))[1]


def memory_reserved(device: Any = None) -> int:
    """The same as memory_allocated: nothing is kept back."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The same as max_memory_allocated."""
    return max_memory_allocated(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Makes the peak the present figure."""
    lib.ttpu_memory_reset_peak(_index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of |device|. Raises RuntimeError where the plugin does not tell the total."""
    used, _, limit, *_ = _memory(_index(device))
    if limit <= 0:
        raise RuntimeError("the plugin does not tell how much memory the device has")
    return max(limit - used, 0), limit


def memory_stats(device: Any = None) -> dict[str, int]:
    """Figures of |device| under the names that torch.cuda.memory_stats uses, as far as they mean something here."""
    used, peak, limit, allocations, frees, *_ = _memory(_index(device))
    stats = {
        "allocated_bytes.all.current": used,
        "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": used,
        "reserved_bytes.all.peak": peak,
        "allocation.all.current": allocations - frees,
        "allocation.all.allocated": allocations,
        "allocation.all.freed": frees,
    }
    if limit > 0:
        stats["bytes_limit"] = limit
    return stats


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of memory_stats for people; |abbreviated| leaves the counts out."""
    index = _index(device)
    used, peak, limit, allocations, frees, *_ = _memory(index)
    rows = [("in use", _human(used)), ("peak", _human(peak))]
    rows += [("of", _human(limit)), ("free", _human(max(limit - used, 0)))] if limit > 0 else []
    if not abbreviated:
        rows += [("buffers in use", str(allocations - frees)), ("made", str(allocations)), ("freed", str(frees))]
    title = f"tpu:{index} ({get_device_name(index)})"
    return "\n".join([title, "-" * len(title), *(f"{name:<16}{value:>12}" for name, value in rows)])


def _human(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


# --- random numbers --------------------------------------------------------------------------------------------------
# A generator is a seed and an offset. Seeding before the device is started is remembered, so that torch.manual_seed in a
# data-loading worker starts nothing.


def _generator(index: int) -> torch.Generator:
    return torch.ops.tpu.default_generator(index)


class _Generators:
    """The default generator of each device, by index."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        return _generator(_index(index))

    def __iter__(self):
        return (self[i] for i in range(len(self)))


default_generators = _Generators()
_pending_seeds: dict[int, int] = {}  # device, or -1 for all: seed given before the start


def _apply_seeds() -> None:
    everywhere = _pending_seeds.pop(-1, None)
    if everywhere is not None:
        for i in range(lib.ttpu_device_count()):
            _generator(i).manual_seed(everywhere)
    for index, value in _pending_seeds.items():
        _generator(_index(index)).manual_seed(value)
    _pending_seeds.clear()


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all tpu devices."""
    seed = int(seed)
    if lib.ttpu_is_initialized():
        for i in range(lib.ttpu_device_count()):
            _generator(i).manual_seed(seed)
        return
    if not _pending_seeds:
        _load.at_initialize(_apply_seeds)
    _pending_seeds.clear()
    _pending_seeds[-1] = seed


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    if lib.ttpu_is_initialized():
        _generator(current_device()).manual_seed(int(seed))
        return
    if not _pending_seeds:
        _load.at_initialize(_apply_seeds)
    _pending_seeds[0] = int(seed)


def seed() -> None:
    """Seeds the current device's generator with a number that cannot be foreseen."""
    _generator(current_device()).seed()


def seed_all() -> None:
    """Seeds the generators of all devices with one number that cannot be foreseen."""
    value = _generator(current_device()).seed()
    manual_seed_all(value)


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(current_device()).initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of the generator of |device|: seed and offset in a CPU tensor of 16 bytes."""
    return _generator(_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """States of the generators of all devices."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Puts the generator of |device| back into |new_state|."""
    _generator(_index(device)).set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Puts the generators of all devices back, in order."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


# --- automatic mixed precision ---------------------------------------------------------------------------------------


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that torch.autocast("tpu") may compute in, the preferred one first."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every plugin computes in bfloat16."""
    return True


from . import amp  # noqa: E402

sys.modules["torch.tpu.amp"] = amp
