"""Configuration of what is learned from pairs of texts that belong together."""

import dataclasses
from typing import Literal

from bert_jax.config.checks import CheckedConfig, require


@dataclasses.dataclass(frozen=True, repr=False)
class SentencePairsConfig(CheckedConfig):
    """Vectors whose similarity means something, or a score of two texts."""

    objective: Literal["contrastive", "cosine", "rank"] = "contrastive"
    """contrastive: of all second texts of the global batch, that of the own pair is the
    most similar (InfoNCE, van den Oord et al. 2018); cosine: the cosine similarity of
    two texts is their label; rank: one score of two texts that are read together."""
    negative_columns: tuple[str, ...] = ()
    """Columns (or JSON fields) of texts that do not belong to the first text, though
    they look like it; empty: negative, negative_1 and so on, if the file has them."""
    temperature: float = 0.05
    """contrastive: divides the cosine similarities before the softmax."""
    symmetric: bool = False
    """contrastive: also find, for each second text, the first text of its pair."""
    pooling: Literal["", "mean", "cls"] = ""
    """How hidden states become a vector; empty: as the model's files say, or mean."""
    dimensions: tuple[int, ...] = ()
    """contrastive: learn also from the first N numbers of the vectors, for each N, so
    that vectors can be cut to them (Matryoshka, Kusupati et al. 2022)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("temperature")
        for number in self.dimensions:
            require(number > 0, f"dimensions: {number} must be at least 1.")
        objective = self.objective
        for name in ("symmetric", "dimensions"):
            why_not = f"objective={objective}; leave it out."
            self.require_effect(name, objective == "contrastive", why_not)
        require(
            objective != "cosine" or not self.negative_columns,
            f"negative_columns={self.negative_columns} have no label for "
            "objective=cosine; choose contrastive, or leave them out.",
        )
        why_not = "objective=rank, which makes no vectors; leave it out."
        self.require_effect("pooling", objective != "rank", why_not)
