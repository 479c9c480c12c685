"""Places where PyTorch itself reads or writes a tensor's memory, and must do that on the host.

print(tensor): PyTorch formats with dozens of small operators on the tensor's own device, except on a fixed list of device
types. With ours on it, printing makes one copy and compiles nothing.

pickle of a tensor: PyTorch wraps the storage's address in a new tensor. Our addresses have no memory behind them.
"""

from __future__ import annotations

import functools

import torch


def install() -> None:
    format_tensor = torch._tensor_str._tensor_str

    @functools.wraps(format_tensor)
    def _tensor_str(self, indent):
        if self.device.type == "tpu" and not torch._C._functorch.is_functorch_wrapped_tensor(self):
            self = self.to("cpu")
        return format_tensor(self, indent)

    torch._tensor_str._tensor_str = _tensor_str

    write_file = torch.UntypedStorage._write_file

    @functools.wraps(write_file)
    def _write_file(self, *args):
        return write_file(self.cpu() if self.device.type == "tpu" else self, *args)

    torch.UntypedStorage._write_file = _write_file  # type: ignore[method-assign]

    set_from_file = torch.UntypedStorage._set_from_file

    @functools.wraps(set_from_file)
    def _set_from_file(self, *args):
        if self.device.type != "tpu":
            return set_from_file(self, *args)
        host = torch.UntypedStorage(self.nbytes())
        set_from_file(host, *args)
        return self.copy_(host)

    torch.UntypedStorage._set_from_file = _set_from_file  # type: ignore[method-assign]
