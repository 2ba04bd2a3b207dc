"""BERT, from raw text to a fine-tuned model, in JAX and Flax.

The names below are loaded when they are first used: `import bert_jax` alone loads
neither JAX nor TensorFlow.
"""

import importlib

TYPE_CHECKING = False  # typing's own would take longer to import than all the rest
if TYPE_CHECKING:
    from bert_jax.config import (
        BertConfig,
        DataConfig,
        ExamplesConfig,
        FinetuneConfig,
        MaskingConfig,
        MeshConfig,
        OptimizerConfig,
        PrepareConfig,
        PretrainConfig,
        VocabularyConfig,
    )
    from bert_jax.data.prepare import prepare
    from bert_jax.data.vocabulary import train_vocabulary
    from bert_jax.inference.evaluation import evaluate
    from bert_jax.inference.predictor import Predictor, load
    from bert_jax.masking.batch import mask_tokens
    from bert_jax.model.encoder import Encoder
    from bert_jax.runs.finetuning import finetune
    from bert_jax.runs.pretraining import pretrain
    from bert_jax.runs.sweeps import finetune_runs
    from bert_jax.tokenization import Tokenizer

_HOME = {
    "BertConfig": "config",
    "DataConfig": "config",
    "ExamplesConfig": "config",
    "FinetuneConfig": "config",
    "MaskingConfig": "config",
    "MeshConfig": "config",
    "OptimizerConfig": "config",
    "PrepareConfig": "config",
    "PretrainConfig": "config",
    "VocabularyConfig": "config",
    "prepare": "data.prepare",
    "evaluate": "inference.evaluation",
    "mask_tokens": "masking.batch",
    "Encoder": "model.encoder",
    "Predictor": "inference.predictor",
    "load": "inference.predictor",
    "finetune": "runs.finetuning",
    "pretrain": "runs.pretraining",
    "finetune_runs": "runs.sweeps",
    "Tokenizer": "tokenization",
    "train_vocabulary": "data.vocabulary",
}

__all__ = [
    "BertConfig",
    "DataConfig",
    "Encoder",
    "ExamplesConfig",
    "FinetuneConfig",
    "MaskingConfig",
    "MeshConfig",
    "OptimizerConfig",
    "Predictor",
    "PrepareConfig",
    "PretrainConfig",
    "Tokenizer",
    "VocabularyConfig",
    "evaluate",
    "finetune",
    "finetune_runs",
    "load",
    "mask_tokens",
    "prepare",
    "pretrain",
    "train_vocabulary",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bert_jax.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
