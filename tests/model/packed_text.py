"""Random token rows, packed and apart."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PackedText:
    rows: tuple[torch.Tensor, ...]

    @property
    def tokens(self) -> torch.Tensor:
        return torch.cat(self.rows)

    @property
    def positions(self) -> torch.Tensor:
        return torch.cat([torch.arange(len(row)) for row in self.rows])

    @property
    def targets(self) -> torch.Tensor:
        return torch.cat([row.roll(-1) for row in self.rows])

    @property
    def cu_seqlens(self) -> torch.Tensor:
        ends = torch.tensor([len(row) for row in self.rows]).cumsum(0)
        return torch.cat([torch.zeros(1, dtype=torch.long), ends]).to(torch.int32)


def random_text(lengths: list[int], *, vocab_size: int = 512, seed: int = 5) -> PackedText:
    generator = torch.Generator().manual_seed(seed)
    return PackedText(tuple(torch.randint(0, vocab_size, (n,), generator=generator) for n in lengths))
