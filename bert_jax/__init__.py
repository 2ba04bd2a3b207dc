"""BERT, from raw text to a fine-tuned model, in JAX and Flax.

The public names are imported at their first use: `import bert_jax` imports neither JAX
nor TensorFlow.
"""

import importlib
import os

import bert_jax.terminal.log  # noqa: F401  `logging.getLogger("bert_jax")` is ready
from bert_jax.distributed.environment import silence_libtpu

silence_libtpu(os.environ)  # for commands, programs and notebooks, before JAX starts

TYPE_CHECKING = False  # importing it from typing takes longer than this whole file
if TYPE_CHECKING:  # `as` marks a name as public
    from bert_jax.apps.inspect.printed import inspect as inspect
    from bert_jax.apps.run_page.run_comparison import run_page as run_page
    from bert_jax.config import BertConfig as BertConfig
    from bert_jax.config import DataConfig as DataConfig
    from bert_jax.config import DistillationConfig as DistillationConfig
    from bert_jax.config import ExamplesConfig as ExamplesConfig
    from bert_jax.config import FinetuneConfig as FinetuneConfig
    from bert_jax.config import MaskingConfig as MaskingConfig
    from bert_jax.config import MeshConfig as MeshConfig
    from bert_jax.config import OptimizerConfig as OptimizerConfig
    from bert_jax.config import PrepareConfig as PrepareConfig
    from bert_jax.config import PretrainConfig as PretrainConfig
    from bert_jax.config import (
        PretrainDistillationConfig as PretrainDistillationConfig,
    )
    from bert_jax.config import RunConfig as RunConfig
    from bert_jax.config import VocabularyConfig as VocabularyConfig
    from bert_jax.data.batches import DatasetBatches as DatasetBatches
    from bert_jax.data.prepare import prepare as prepare
    from bert_jax.data.records import open_dataset as open_dataset
    from bert_jax.data.vocabulary import train_vocabulary as train_vocabulary
    from bert_jax.distributed.mesh import host_shard as host_shard
    from bert_jax.distributed.mesh import make_mesh as make_mesh
    from bert_jax.inference.attention_page import attention_page as attention_page
    from bert_jax.inference.batching import text_inputs as text_inputs
    from bert_jax.inference.evaluation import error_page as error_page
    from bert_jax.inference.evaluation import evaluate as evaluate
    from bert_jax.inference.evaluation import evaluation_report as evaluation_report
    from bert_jax.inference.predictor import Predictor as Predictor
    from bert_jax.inference.predictor import load as load
    from bert_jax.masking.batch import mask_by_row as mask_by_row
    from bert_jax.masking.batch import mask_tokens as mask_tokens
    from bert_jax.model.bert import Bert as Bert
    from bert_jax.model.bert import compute as compute
    from bert_jax.model.bert import init_params as init_params
    from bert_jax.model.encoder import Encoder as Encoder
    from bert_jax.model.inputs import Inputs as Inputs
    from bert_jax.model.losses import accuracy as accuracy
    from bert_jax.model.losses import cross_entropy as cross_entropy
    from bert_jax.model.losses import weighted_sum as weighted_sum
    from bert_jax.runs.finetuning import finetune as finetune
    from bert_jax.runs.fitting import fit as fit
    from bert_jax.runs.pretraining import pretrain as pretrain
    from bert_jax.runs.sweeps import finetune_runs as finetune_runs
    from bert_jax.tasks.task import Task as Task
    from bert_jax.tokenization import Tokenizer as Tokenizer
    from bert_jax.training.callbacks import Callback as Callback

_NAMES = {
    "apps.inspect.printed": "inspect",
    "apps.run_page.run_comparison": "run_page",
    "config": "BertConfig DataConfig DistillationConfig ExamplesConfig FinetuneConfig "
    "MaskingConfig MeshConfig OptimizerConfig PrepareConfig PretrainConfig "
    "PretrainDistillationConfig RunConfig VocabularyConfig",
    "data.batches": "DatasetBatches",
    "data.prepare": "prepare",
    "data.records": "open_dataset",
    "data.vocabulary": "train_vocabulary",
    "inference.attention_page": "attention_page",
    "inference.batching": "text_inputs",
    "inference.evaluation": "error_page evaluate evaluation_report",
    "inference.predictor": "Predictor load",
    "distributed.mesh": "host_shard make_mesh",
    "masking.batch": "mask_by_row mask_tokens",
    "model.bert": "Bert compute init_params",
    "model.encoder": "Encoder",
    "model.inputs": "Inputs",
    "model.losses": "accuracy cross_entropy weighted_sum",
    "runs.finetuning": "finetune",
    "runs.fitting": "fit",
    "runs.pretraining": "pretrain",
    "runs.sweeps": "finetune_runs",
    "tasks.task": "Task",
    "tokenization": "Tokenizer",
    "training.callbacks": "Callback",
}
_MODULE_OF = {name: module for module in _NAMES for name in _NAMES[module].split()}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bert_jax.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
