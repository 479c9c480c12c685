"""Trains Linear(4096) - GELU - Linear(4096) on random numbers: the time goes to large matrix products.

usage: mlp4096.py [--steps N] [--mode debug|strict|fused] [--device tpu|cpu]
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--mode", choices=("debug", "strict", "fused"))
    parser.add_argument("--device", default="tpu")
    options = parser.parse_args()
    if options.mode and options.device.startswith("tpu"):
        import torchtpu

        torchtpu.set_eager_mode(options.mode)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 4096)).to(options.device)
    x, y = torch.randn(32, 4096).to(options.device), torch.randn(32, 4096).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(options.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        value = loss.item()
        print(f"step {step + 1:3d}  loss {value:.6f}  {(time.perf_counter() - start) * 1e3:7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
