"""print(tensor) makes one copy to the host and compiles nothing.

PyTorch formats a tensor with dozens of small operators on the tensor's own device, except on a fixed list of device
types that it copies to the host first. This puts ours on that list.
"""

from __future__ import annotations

import functools

import torch


def install() -> None:
    original = torch._tensor_str._tensor_str

    @functools.wraps(original)
    def _tensor_str(self, indent):
        if self.device.type == "tpu" and not torch._C._functorch.is_functorch_wrapped_tensor(self):
            self = self.to("cpu")
        return original(self, indent)

    torch._tensor_str._tensor_str = _tensor_str
