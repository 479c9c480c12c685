"""Errors of the device that are not PyTorch's own.

Whatever can be known without device data (shapes, dtypes, arguments) raises PyTorch's own error types at the call.
An exhausted memory is ``torch.OutOfMemoryError``, an operator that nothing can run ``NotImplementedError``. The rest
(a plugin that cannot be loaded, a program that failed on the device) is a DeviceError.
"""

from __future__ import annotations

import torch

#: The C++ side raises PyTorch's error for accelerators; this is its name here. A RuntimeError.
DeviceError = torch.AcceleratorError

_OUT_OF_MEMORY, _OUT_OF_RANGE, _UNIMPLEMENTED = 8, 11, 12


def make(code: int, message: str) -> Exception:
    """The Python error for a status of the core: |code| is one of absl's 16."""
    if code == _OUT_OF_MEMORY:
        return torch.OutOfMemoryError(f"tpu: {message}")
    if code == _OUT_OF_RANGE:
        return IndexError(message)
    if code == _UNIMPLEMENTED:
        return NotImplementedError(message)
    return DeviceError(message)
