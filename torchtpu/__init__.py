"""TorchTPU: a native PyTorch device, ``torch.device("tpu")``, over the PJRT C API.

Installing the package is enough: PyTorch loads it by itself, so ``torch.ones(2, device="tpu")`` works without an import.
What PyTorch users know from ``torch.cuda`` is in ``torch.tpu``; this package holds what is ours: eager modes, statistics,
the policy for operators without a lowering.

    >>> import torch
    >>> x = torch.arange(4.0, device="tpu")
    >>> (x * 2).cpu()
    tensor([0., 2., 4., 6.])
"""

from __future__ import annotations

__version__ = "0.1.0"


def _autoload() -> None:
    """Entry point of the group ``torch.backends``: called by ``import torch``, and by ``import torchtpu``."""
    from . import _load

    _load.register()


import torch  # noqa: E402  (runs _autoload through the entry point when the package is installed)

from .errors import DeviceError  # noqa: E402
from .modes import eager_mode, get_eager_mode, set_eager_mode  # noqa: E402
from .stats import explain, get_fallback, set_fallback, stats  # noqa: E402

_autoload()


def device(index: int | None = None) -> torch.device:
    """The tpu device with |index|, the current one by default: ``torchtpu.device(0)`` is ``torch.device("tpu:0")``."""
    return torch.device("tpu", torch.tpu.current_device() if index is None else index)


__all__ = [
    "DeviceError",
    "device",
    "eager_mode",
    "explain",
    "get_eager_mode",
    "get_fallback",
    "set_eager_mode",
    "set_fallback",
    "stats",
]
