"""Text trains a small transformer to write Python, one character after the other.

The text is the source of Python's own standard library, which every Python brings. The model is a decoder-only
transformer (Vaswani et al., "Attention is all you need", 2017) with normalisation before each block, as in GPT-2.
"""

from __future__ import annotations

import math
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn import functional
from typing_extensions import override

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.task import Task

CHARACTERS = 128  # ASCII; what is beyond it becomes a question mark
EVALUATED = 512  # windows of the validation text
WARM_UP = 0.05  # of all steps


class Text(Task):
    """Text predicts the next character of Python source. Sizes are per layer; the text is cut off after `bytes`."""

    def __init__(
        self,
        *,
        layers: int = 2,
        width: int = 64,
        heads: int = 4,
        context: int = 64,
        bytes: int = 2_000_000,  # noqa: A002 (it is the argument's name in the YAML)
        learning_rate: float = 0.003,
    ) -> None:
        if width % heads:
            raise ConfigurationError(f"spec.training.arguments.width: {width} is not a multiple of heads, {heads}.")
        self.layers, self.width, self.heads, self.context = layers, width, heads, context
        self.learning_rate = learning_rate
        self._train, self._validation = (_windows(text, context) for text in _texts(bytes))

    @override
    def model(self) -> nn.Module:
        return Transformer(self.layers, self.width, self.heads, self.context)

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        return self._train[:, :-1], self._train[:, 1:]

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        # All windows are equally long, so the mean over characters is the mean over samples.
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten().long())

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.learning_rate, betas=(0.9, 0.95))

    @override
    def learning_rate_factor(self, fraction: float) -> float:
        """Return a factor that rises linearly, then falls along a half cosine to a tenth."""
        if fraction < WARM_UP:
            return fraction / WARM_UP
        return 0.55 + 0.45 * math.cos(math.pi * (fraction - WARM_UP) / (1 - WARM_UP))

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        device = next(model.parameters()).device
        losses = [
            self.loss(model(windows[:, :-1].to(device)), windows[:, 1:].to(device)) * len(windows)
            for windows in torch.split(self._validation[:EVALUATED], 64)
        ]
        per_character = float(torch.stack(losses).sum()) / len(self._validation[:EVALUATED])
        return {"validation_loss": per_character, "bits_per_character": per_character / math.log(2)}

    @override
    def model_layers(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        model = cast("Transformer", model)
        blocks = [(f"blocks.{number}", block) for number, block in enumerate(model.blocks)]
        return [("embedding", model.embedding), *blocks, ("head", model.head)]

    @override
    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        """Split by heads and hidden units; characters by rows of their table, and by columns of the last scores."""
        return {
            "embedding.characters": RowwiseParallel(input_layouts=Replicate()),
            "blocks.*.attention.query": ColwiseParallel(),
            "blocks.*.attention.key": ColwiseParallel(),
            "blocks.*.attention.value": ColwiseParallel(),
            "blocks.*.attention.out": RowwiseParallel(),
            "blocks.*.feed_forward.0": ColwiseParallel(),
            "blocks.*.feed_forward.2": RowwiseParallel(),
            "head.1": ColwiseParallel(output_layouts=Replicate()),
        }

    @override
    def tensor_units(self) -> dict[str, int]:
        return {"heads (spec.training.arguments.heads)": self.heads}


class Transformer(nn.Module):
    """Transformer takes characters and gives scores of the next character."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = Embedding(width, context)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CHARACTERS, bias=False))
        for table in (self.embedding.characters, self.embedding.positions):
            nn.init.normal_(table.weight, std=0.02)  # as GPT-2 begins; torch's 1.0 drowns what the blocks add

    @override
    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


class Embedding(nn.Module):
    """Embedding gives a vector for each character and its place."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(context, width)

    @override
    def forward(self, text: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        result: Tensor = self.characters(text.int()) + self.positions(places)
        return result


class Block(nn.Module):
    """Block is one layer: attention to earlier characters, then a feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    @override
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Attention(nn.Module):
    """Attention is causal self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result

    def _split(self, x: Tensor) -> Tensor:
        """Turn (batch, place, width) into (batch, head, place, width of a head)."""
        return x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2)


@cache
def _texts(size: int) -> tuple[bytes, bytes]:
    """Return the text to train on and the text to validate with: every tenth module is for validation."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(path for path in library.glob("*.py") if not path.name.startswith("_"))
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for number, path in enumerate(modules):
        parts[number % 10 == 0].append(path.read_bytes())
    training, validation = (b"".join(part) for part in parts)
    return training[:size], validation[: max(size // 10, 4096)]


def _windows(text: bytes, context: int) -> Tensor:
    """Cut the text into pieces of `context` characters and the one that follows, each character once."""
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    codes = torch.where(codes < CHARACTERS, codes, ord("?"))
    if len(codes) <= context:
        raise ConfigurationError(f"spec.training.arguments.context: {context} is more than the text has; raise bytes.")
    return codes.unfold(0, context + 1, context)
