"""Trains a small GPT on the text of this project's licence, character by character, and lets it write.

usage: gpt.py [--steps N] [--mode debug|strict|fused] [--optimizer foreach|fused|plain] [--device tpu|cpu]
"""

import argparse
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """Pre-norm transformer block; causal attention over (batch, time, width)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time_, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, time_, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, time_, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """(batch, time) tokens -> (batch, time, vocabulary) scores of the next token."""

    def __init__(self, vocabulary: int, width: int = 128, heads: int = 4, layers: int = 4, context: int = 64):
        super().__init__()
        self.context = context
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(positions))))


@torch.no_grad()
def write(model: GPT, start: torch.Tensor, count: int) -> list[int]:
    """Continues |start|, a (1, context) window, by |count| tokens."""
    window, written = start, []
    for _ in range(count):
        scores = model(window)[:, -1] / 0.7
        token = torch.multinomial(scores.softmax(-1), 1)
        window = torch.cat([window[:, 1:], token], 1)
        written.append(token)
    return torch.cat(written, 1)[0].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--mode", choices=("debug", "strict", "fused"))
    parser.add_argument("--optimizer", choices=("foreach", "fused", "plain"), default="foreach")
    parser.add_argument("--device", default="tpu")
    options = parser.parse_args()
    if options.mode and options.device.startswith("tpu"):
        import torchtpu

        torchtpu.set_eager_mode(options.mode)
    text = (Path(__file__).parent.parent / "LICENSE").read_text()
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(c) for c in text], device=options.device)

    torch.manual_seed(0)
    model = GPT(len(letters)).to(options.device)
    flags = {"foreach": options.optimizer == "foreach", "fused": options.optimizer == "fused"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **flags)
    window = torch.arange(model.context, device=options.device)
    start = time.perf_counter()
    for step in range(options.steps):
        at = torch.randint(len(tokens) - model.context - 1, (16, 1), device=options.device) + window
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens[at]).flatten(0, 1), tokens[at + 1].flatten())
        loss.backward()
        optimizer.step()
        if step % 20 == 19 or step == 0:
            print(f"step {step + 1:4d}  loss {loss.item():.3f}  {time.perf_counter() - start:6.1f} s", flush=True)
    model.eval()
    print("".join(letters[t] for t in write(model, tokens[None, : model.context], 240)))


if __name__ == "__main__":
    main()
