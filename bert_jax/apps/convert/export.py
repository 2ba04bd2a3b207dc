"""Export a model to files of Hugging Face's transformers."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict
from jaxtyping import Float32
from safetensors.numpy import save

from bert_jax.apps.convert.comparison import Comparison, compare
from bert_jax.apps.convert.model_card import model_card
from bert_jax.apps.convert.origin import origin_of
from bert_jax.config import BertConfig
from bert_jax.config.model import POOLED_HEADS
from bert_jax.formats.embedding import write_embedding
from bert_jax.formats.families import FAMILIES
from bert_jax.formats.folding import unfold
from bert_jax.formats.huggingface import CONFIG
from bert_jax.formats.huggingface_config import RATES, SIZES
from bert_jax.formats.imported import RECEIPT, Leaf, abbreviate
from bert_jax.formats.model_files import CARD
from bert_jax.formats.names import Name, names_of
from bert_jax.formats.sentencepiece_files import (
    TokenizerDifferences,
    write_sentencepiece,
)
from bert_jax.formats.tensor_files import SINGLE
from bert_jax.formats.tokenizer_json import FAST, TOKENIZER_JSON, write_files
from bert_jax.formats.tokenizers import to_huggingface
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import JsonObject, atomic_write, write_json
from bert_jax.storage.manifest import describe_files
from bert_jax.terminal.messages import warn

_TABLES = {
    "vocab_size": "word_embeddings",
    "max_position_embeddings": "position_embeddings",
    "type_vocab_size": "token_type_embeddings",
}
"""The table whose number of rows is the value of a key, in every family."""
_IDENTITY = "torch.nn.modules.linear.Identity"
"""What sentence-transformers applies to a number; its default is a sigmoid."""


def export_huggingface(
    source: str | Model,
    output: epath.Path,
    license: str = "",
    language: str | Sequence[str] = (),
) -> tuple[tuple[Leaf, ...], Comparison, TokenizerDifferences]:
    """Write a model for transformers atomically, to a directory that is new or empty.

    `source` is a model, or a path for `load_pretrained`. `license` and the codes of
    `language` are for its card; if empty, those of the model that it was made of.
    Raise FileNotFoundError if there is no model, FileExistsError if `output` has files,
    ValueError if the model is damaged, or transformers does not support it.

    The result is the target of each parameter, and the differences of transformers'
    outputs and of its tokenizer.
    """
    model, left_out = with_class_of_family(load_pretrained(source).in_target_units())
    origin = origin_of(model).stated(license, language)
    require_tokenizer_json(model, source)
    _require_expressible(model.config)
    with atomic_directory(output) as directory:
        tensors, leaves = huggingface_tensors(model)
        write_safetensors(tensors, directory / SINGLE)
        sizes, pad_id = table_sizes(tensors), model.tokenizer.pad_id
        config = huggingface_config(model.config, pad_id, sizes)
        if has_own_head(model):
            class_name = FAMILIES[model.config.family].class_name
            config["architectures"] = [f"{class_name}ForPreTraining"]
        write_json(config, directory / CONFIG)
        differences = write_tokenizer(model, directory)
        if (embedding := model.embedding) is not None and embedding.unsupported:
            lost = f"the model's files require {embedding.unsupported}"
            warn(f"{output}: {lost}, which is left out: `embed` takes the mean there.")
        elif embedding is not None:
            write_embedding(embedding, directory, model.config)
        class_name = config["architectures"][0]
        card = model_card(model, class_name, max_tokens(model), origin)
        # A name of a file may hold bytes that are no UTF-8.
        (directory / CARD).write_bytes(card.encode(errors="replace"))
        comparison = compare(directory, model.config, model.params)
        receipt: JsonObject = {"comparison": dataclasses.asdict(comparison)}
        if left_out:
            receipt["left_out"] = left_out
        if differences.strings:
            receipt["tokenizer_differences"] = dataclasses.asdict(differences)
        receipt |= export_receipt(model, leaves, directory)
        write_json(receipt, directory / RECEIPT)
    return leaves, comparison, differences


def require_tokenizer_json(model: Model, source: str | Model) -> None:
    """Raise ValueError if Hugging Face's library has no such tokenizer."""
    if model.tokenizer.kind == "char":
        raise ValueError(
            f"{source} has a vocabulary of kind char, which has no counterpart in "
            "Hugging Face's tokenizers; use `bert-jax convert export --to stablehlo`."
        )


def write_tokenizer(model: Model, directory: epath.Path) -> TokenizerDifferences:
    """Write the tokenizer's files; only sentencepiece can have differences."""
    limits: JsonObject = {
        "model_max_length": max_tokens(model),
        "model_input_names": input_names(model.config),
    }
    tokenizer = model.tokenizer
    if tokenizer.kind == "huggingface":  # its tokenizer.json, as it was
        content = tokenizer.files[TOKENIZER_JSON]
        write_files(tokenizer, content, FAST | limits, directory)
    elif tokenizer.kind == "wordpiece":
        to_huggingface(tokenizer, directory, limits)
    else:
        return write_sentencepiece(tokenizer, directory, limits)
    return TokenizerDifferences()


def max_tokens(model: Model) -> int:
    """Return the length to which texts are cut, [CLS] and [SEP] included."""
    positions = model.config.max_position_embeddings
    return min(model.own_length or positions, positions)


def input_names(config: BertConfig) -> list[str]:
    """Return the names of the model's inputs; one segment needs no input of its own."""
    segments = ["token_type_ids"] * (config.type_vocab_size > 1)
    return ["input_ids", *segments, "attention_mask"]


def with_class_of_family(model: Model) -> tuple[Model, list[str]]:
    """Return a model whose head its family has a class for, and what was left out.

    Only BERT has a class with two heads of pretraining; for other families that is a
    masked language model.
    """
    config = model.config
    if config.head != "pretraining" or FAMILIES[config.family].class_of("pretraining"):
        return model, []
    left_out = ["next_sentence", "pooler"]
    params = {name: v for name, v in model.params.items() if name not in left_out}
    return model.changed(params, head="masked_lm"), left_out


def _require_expressible(config: BertConfig) -> None:
    remedy = "use `bert-jax convert export --to onnx`, or `--to stablehlo`."
    if config.attention == "causal":
        raise ValueError(
            "attention='causal' has no counterpart in transformers, whose BERT heads "
            f"attend to both sides; {remedy}"
        )
    family = FAMILIES[config.family]
    for name, value in (family.fixed | family.only.get(config.head, {})).items():
        if (ours := getattr(config, name, value)) != value:
            raise ValueError(
                f"{name}={ours} has no counterpart in transformers' "
                f"classes of {config.family}, which have {value}; {remedy}"
            )
    if config.pooling != "cls" and config.head in POOLED_HEADS:
        raise ValueError(
            f"pooling={config.pooling!r} with head={config.head} has no counterpart in "
            f"transformers, whose class uses [CLS]; {remedy}"
        )


def has_own_head(model: Model) -> bool:
    """Whether the files had a head of their family, which is written again."""
    start = FAMILIES[model.config.family].own_head
    return bool(start) and any(name.startswith(start) for name in model.unused)


def table_sizes(tensors: dict[str, Float32[np.ndarray, "..."]]) -> dict[str, int]:
    """Return the number of rows of each table of embeddings, by the key of config.json.

    A family's tables may have more rows than the model uses.
    """
    return {
        key: len(values)
        for key, table in _TABLES.items()
        for name, values in tensors.items()
        if f".{table}." in f".{name}"
    }


def huggingface_config(
    config: BertConfig, pad_id: int, sizes: Mapping[str, int]
) -> JsonObject:
    """Return the content of config.json, with `sizes` in place of the model's."""
    family = FAMILIES[config.family]
    fields = {name: getattr(config, name) for name in (*SIZES, *RATES, "hidden_act")}
    fields |= sizes
    if not family.has_segments:
        del fields["type_vocab_size"]
    for name in family.fixed:
        del fields[name]
    fields |= {key: fields[other] for key, other in family.required.items()}
    values: JsonObject = {
        "architectures": [name] if (name := family.class_of(config.head)) else [],
        "model_type": config.family,
        **{family.config_keys.get(name, name): v for name, v in fields.items()},
        "pad_token_id": pad_id,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.labels:
        values["id2label"] = {str(i): name for i, name in enumerate(config.labels)}
        values["label2id"] = {name: i for i, name in enumerate(config.labels)}
    if config.head == "sequence_classification":
        values["problem_type"] = config.problem_type
        if config.problem_type == "regression":
            values["sentence_transformers"] = {"activation_fn": _IDENTITY}
    return values


def require_parameters(model: Model, extra: bool = False) -> list[Name]:
    """Return the names of the parameters of a model with this head.

    Raise ValueError if the model lacks some of them, or has others, which with `extra`
    a task of one's own may have added.
    """
    names = names_of(model.config, pooler="pooler" in model.params)
    ours, own = {n.ours for n in names}, set(flatten_dict(model.params, sep="/"))
    for verb, paths in (("lacks", ours - own), ("has", () if extra else own - ours)):
        if paths:
            raise ValueError(
                f"{model} {verb} {abbreviate(sorted(paths))}, unlike a model with "
                f"head={model.config.head}, and the form holds no other; save it as a "
                'checkpoint: load(…).save(…, to="checkpoint").'
            )
    return names


def huggingface_tensors(
    model: Model,
) -> tuple[dict[str, Float32[np.ndarray, "..."]], tuple[Leaf, ...]]:
    """Return the tensors by their names in transformers, and the source of each.

    The output layer of the masked-LM head is left out: transformers ties it to the
    table of embeddings.
    """
    params = flatten_dict(model.params, sep="/")
    names = require_parameters(model)
    head, family = model.config.head, FAMILIES[model.config.family]
    unfolded = unfold(params, model.unused, family, model.tokenizer)
    # The class without a head has no prefix.
    no_head = head == "encoder" and not has_own_head(model)
    prefix = f"{family.prefix}." if no_head else ""
    # Whole tensors that an import put aside, by the names in their files.
    tensors = {name: values for name, values in model.unused.items() if "/" not in name}
    leaves = []
    for name in names:
        if name.ours not in unfolded:
            continue  # DistilBERT's positions hold the segment
        values = unfolded[name.ours]
        target = family.rename_from_bert(name.huggingface, head).removeprefix(prefix)
        transposed = name.huggingface_transposed
        tensors[target] = values.T if transposed else values
        shape, dtype = params[name.ours].shape, str(values.dtype)
        leaves.append(Leaf(name.ours, target, shape, dtype, transposed))
    return tensors, tuple(leaves)


def write_safetensors(
    tensors: dict[str, Float32[np.ndarray, "..."]], path: epath.Path
) -> None:
    """Write a safetensors file with the metadata that transformers writes."""
    # The library ignores strides.
    dense = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    atomic_write(path, save(dense, metadata={"format": "pt"}))


def export_receipt(
    model: Model, leaves: tuple[Leaf, ...], directory: epath.Path
) -> JsonObject:
    """Return the content of `conversion.json`, with the files written so far."""
    folded = dict(zip(("mean", "deviation"), model.targets, strict=True))
    note = {"targets_in_classifier": folded} if model.targets != (0.0, 1.0) else {}
    return note | {
        "source": str(model.directory),
        "sources": list(model.sources),
        "tensors": [dataclasses.asdict(leaf) for leaf in leaves],
        "files": describe_files(directory),
    }
