"""A translator of dates, "Saturday, 21 November 2026" to "2026-11-21": encoder on one worker, decoder on another.

What makes it ready for Pipeline is `model_layers`: encoder, then decoder, and what the one hands to the other is a
tuple of tensors. Nothing here knows of workers.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import torch
from torch import Tensor, nn
from trainmaster_trainer.task import Task

FIRST = dt.date(1950, 1, 1)
DAYS = 36_500
SOURCE = 28  # characters of the longest date in words
TARGET = 10
START = "\x02"
TESTED = 500


class Dates(Task):
    """Read a date in words, write it as ISO 8601 has it."""

    def __init__(self, layers: int = 2, width: int = 64, heads: int = 4, learning_rate: float = 0.002) -> None:
        self.layers, self.width, self.heads, self.learning_rate = layers, width, heads, learning_rate
        order = torch.randperm(DAYS, generator=torch.Generator().manual_seed(0))
        self._test, self._train = order[:TESTED], order[TESTED:]

    def model(self) -> nn.Module:
        """Two parts, one after the other."""
        return nn.Sequential(Encoder(self.layers, self.width, self.heads), Decoder(self.layers, self.width, self.heads))

    def model_layers(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        """The one cut that there is."""
        return list(zip(("encoder", "decoder"), model.children(), strict=True))

    def dataset(self) -> tuple[Tensor, Tensor]:
        """Both texts side by side as input, the second one place late; the second as target."""
        return _samples(self._train)

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Of the next character."""
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.AdamW(parameters, lr=self.learning_rate)

    def learning_rate_factor(self, fraction: float) -> float:
        """Up over the first tenth of all steps, then down."""
        return min(10 * fraction, 1.0, 2 * (1 - fraction) + 0.05)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Dates that the training has not seen, character by character."""
        device = next(model.parameters()).device
        inputs, targets = _samples(self._test)
        right = model(inputs.to(device)).argmax(dim=-1).cpu() == targets
        return {"characters_right": float(right.float().mean()), "dates_right": float(right.all(dim=1).float().mean())}


class Encoder(nn.Module):
    """Reads the first text; hands on what it understood, and the second text."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, width), nn.Embedding(SOURCE, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )

    def forward(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """From [batch, 28 + 10] characters to [batch, 28, width], and [batch, 10] characters."""
        source, target = both[:, :SOURCE], both[:, SOURCE:]
        x = self.characters(source) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return x, target


class Decoder(nn.Module):
    """Writes the second text: each character from those before it and what the encoder understood."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, width), nn.Embedding(TARGET, width)
        self.blocks = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 128)

    def forward(self, understood: tuple[Tensor, Tensor]) -> Tensor:
        """Scores of the next character, [batch, 10, 128]."""
        memory, target = understood
        x = self.characters(target) + self.places.weight
        mask = nn.Transformer.generate_square_subsequent_mask(TARGET, device=x.device)
        for block in self.blocks:
            x = block(x, memory, tgt_mask=mask, tgt_is_causal=True)
        scores: Tensor = self.head(x)
        return scores


def _samples(days: Tensor) -> tuple[Tensor, Tensor]:
    dates = [FIRST + dt.timedelta(days=int(day)) for day in days]
    words = _codes([date.strftime("%A, %d %B %Y").ljust(SOURCE) for date in dates])
    plain = [date.isoformat() for date in dates]
    return torch.cat([words, _codes([START + text[:-1] for text in plain])], dim=1), _codes(plain)


def _codes(texts: list[str]) -> Tensor:
    return torch.tensor([list(text.encode()) for text in texts])
