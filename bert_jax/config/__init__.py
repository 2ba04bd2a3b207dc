"""All configurations: frozen dataclasses that check their values.

They hold plain values only, can be compared and written as JSON, and become the options
of the command line, with the docstrings of the fields as help texts.
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
