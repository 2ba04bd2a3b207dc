"""Every configuration: frozen dataclasses and their checks.

They hold plain values only, to be compared, written as JSON, and offered as options.
"""

from bert_jax.config.data import PrepareConfig, TextConfig, VocabularyConfig
from bert_jax.config.finetuning import ExamplesConfig, FinetuneConfig
from bert_jax.config.model import PRESETS, BertConfig
from bert_jax.config.training import (
    DataConfig,
    MaskingConfig,
    MeshConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
)

__all__ = [
    "PRESETS",
    "BertConfig",
    "DataConfig",
    "ExamplesConfig",
    "FinetuneConfig",
    "MaskingConfig",
    "MeshConfig",
    "OptimizerConfig",
    "PrepareConfig",
    "PretrainConfig",
    "RunConfig",
    "TextConfig",
    "VocabularyConfig",
]
