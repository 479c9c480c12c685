"""Trains a convolutional network on scikit-learn's 1,797 scanned digits, on the tpu device.

usage: digits.py [--mode debug|strict|fused] [--epochs N] [--device tpu|cpu]

On a machine without a TPU the device is XLA's CPU plugin; the script is the same. Ends with the accuracy on 360 digits
that were held out, and what the device did. Exits with 1 below 97%.
"""

import argparse
import sys
import time
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

HELD_OUT, BATCH, GOAL = 360, 64, 0.97


def network() -> nn.Module:
    """(N, 1, 8, 8) grey images -> (N, 10) scores."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
    )  # fmt: skip


def data(device: str) -> tuple[torch.Tensor, ...]:
    """Training images and labels, then those held out; pixels scaled to 0..1."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = torch.from_numpy(digits.images[order]).float().div(16).unsqueeze(1).to(device)
    y = torch.from_numpy(digits.target[order]).to(device)
    return x[HELD_OUT:], y[HELD_OUT:], x[:HELD_OUT], y[:HELD_OUT]


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, console: Console) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = len(x) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=6e-3, total_steps=epochs * steps)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling the first step", total=epochs * steps)
        for epoch in range(epochs):
            order = torch.randperm(len(x), device=x.device)
            for step in range(steps):
                batch = order[step * BATCH : (step + 1) * BATCH]
                optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(model(x[batch]), y[batch])
                loss.backward()
                optimizer.step()
                schedule.step()
                progress.advance(task)
            progress.update(task, description=f"epoch {epoch + 1:2d}/{epochs}, loss {loss.item():.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=("debug", "strict", "fused"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="tpu")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*lr_scheduler.*")
    console = Console()
    on_tpu = torch.device(options.device).type == "tpu"
    if on_tpu:
        import torchtpu

        if options.mode:
            torchtpu.set_eager_mode(options.mode)
    torch.manual_seed(0)
    start = time.perf_counter()
    x, y, held_x, held_y = data(options.device)
    model = network().to(options.device)
    train(model, x, y, options.epochs, console)
    right = accuracy(model, held_x, held_y)

    table = Table(title=f"{len(x)} digits to learn, {len(held_x)} to test", title_justify="left", show_header=False)
    table.add_row("test accuracy", f"[bold]{right:.2%}[/bold]")
    table.add_row("time", f"{time.perf_counter() - start:.1f} s")
    if on_tpu:
        stats, device = torchtpu.stats(), torch.tpu.get_device_properties()
        table.add_row("device", f"tpu:0, {device.name} by {device.plugin.rsplit('/', 2)[-2]}")
        table.add_row("mode", torchtpu.get_eager_mode())
        table.add_row("operators recorded", f"{stats['ops_recorded']:,}")
        table.add_row("programs compiled", f"{stats['programs_compiled']:,}")
        table.add_row("cache hits", f"{stats['program_hits']:,} in memory, {stats['disk_hits']:,} on disk")
        table.add_row("host fallbacks", str(sum(stats["fallbacks"].values())))
    console.print(table)
    if right < GOAL:
        console.print(f"[red]below the {GOAL:.0%} that this network reaches[/red]")
    return int(right < GOAL)


if __name__ == "__main__":
    sys.exit(main())
