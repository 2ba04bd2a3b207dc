"""All configurations: frozen dataclasses that check their values.

They hold plain values only, can be compared and written as JSON, and become the options
of the command line, with the docstrings of the fields as help texts.
"""

from bert_jax.config.data import PrepareConfig as PrepareConfig
from bert_jax.config.data import TextConfig as TextConfig
from bert_jax.config.data import VocabularyConfig as VocabularyConfig
from bert_jax.config.distillation import DistillationConfig as DistillationConfig
from bert_jax.config.distillation import (
    PretrainDistillationConfig as PretrainDistillationConfig,
)
from bert_jax.config.embedding import Embedding as Embedding
from bert_jax.config.finetuning import ExamplesConfig as ExamplesConfig
from bert_jax.config.finetuning import FinetuneConfig as FinetuneConfig
from bert_jax.config.model import PRESETS as PRESETS
from bert_jax.config.model import BertConfig as BertConfig
from bert_jax.config.optimizer import OptimizerConfig as OptimizerConfig
from bert_jax.config.sentence_pairs import SentencePairsConfig as SentencePairsConfig
from bert_jax.config.training import DataConfig as DataConfig
from bert_jax.config.training import MaskingConfig as MaskingConfig
from bert_jax.config.training import MeshConfig as MeshConfig
from bert_jax.config.training import PretrainConfig as PretrainConfig
from bert_jax.config.training import RunConfig as RunConfig
