"""Directories of RoBERTa, XLM-R, CamemBERT, DistilBERT and ELECTRA, as transformers
saves them, from tests/parity/families.npz, with tokenizers of the same size.
"""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.tokenization import SPECIAL_TOKENS

FIXTURE = Path(__file__).parent / "parity" / "families.npz"
LETTERS = list(string.ascii_lowercase)
NAMES = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
WORDPIECES = [*SPECIAL_TOKENS, *LETTERS, "the", "cat", "mat", "##s", "##t", "."]
WORDPIECES += [",", "!", "?"]


def model_names() -> list[str]:
    with np.load(FIXTURE) as npz:
        names = [n for n in npz if n.endswith("/config")]
    return sorted(name.split("/")[1] for name in names)


def family_of(name: str) -> str:
    return name.partition("For")[0].removesuffix("Model")


def stored_model(name: str) -> tuple[dict[str, Any], bytes, dict[str, np.ndarray]]:
    """Its config.json, the bytes of its model.safetensors, and its outputs."""
    start = f"models/{name}/outputs/"
    with np.load(FIXTURE) as npz:
        config = json.loads(str(npz[f"models/{name}/config"]))
        tensors = npz[f"models/{name}/safetensors"].tobytes()
        outputs = {n.removeprefix(start): npz[n] for n in npz if n.startswith(start)}
    return config, tensors, outputs


def stored_inputs(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids, the segments and the attention mask of a model's outputs."""
    config, _, _ = stored_model(name)
    with np.load(FIXTURE) as npz:
        start = f"inputs/{config['pad_token_id']}/"
        ids, mask = npz[f"{start}input_ids"], npz[f"{start}attention_mask"]
        second = npz[f"{start}token_type_ids"]
    has_two = config.get("type_vocab_size", 1) == 2
    return ids, second * has_two, mask


def write_model(name: str, folder: Path) -> Path:
    """Write the directory that transformers would save."""
    folder.mkdir(parents=True)
    config, tensors, _ = stored_model(name)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(tensors)
    write_tokenizer(family_of(name), folder)
    return folder


def write_tokenizer(family: str, folder: Path) -> None:
    """Write a tokenizer of 40 tokens, as transformers would."""
    if family in ("DistilBert", "Electra"):
        (folder / "vocab.txt").write_text("\n".join(WORDPIECES) + "\n")
        config: dict[str, Any] = {"do_lower_case": True}
    else:
        content = byte_level_bpe() if family == "Roberta" else unigram(family)
        (folder / "tokenizer.json").write_text(json.dumps(content))
        config = dict(NAMES)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def added(token: str, number: int, **flags: bool) -> dict[str, Any]:
    """An entry of `added_tokens`."""
    names = ("single_word", "lstrip", "rstrip", "normalized")
    entry = {"id": number, "content": token, **dict.fromkeys(names, False)}
    return entry | flags | {"special": True}


def byte_level_bpe() -> dict[str, Any]:
    """RoBERTa's kind: bytes, merged; a space belongs to the word after it."""
    merges = [["t", "h"], ["th", "e"], ["\u0120", "the"], ["a", "t"], ["c", "at"]]
    pieces = ["\u0120", *LETTERS, ".", ",", "!", *("".join(pair) for pair in merges)]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
    ids = {token: i for i, token in enumerate(tokens)}
    special = [added(token, ids[token]) for token in tokens[:4]]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    byte_level |= {"add_prefix_space": False}
    return {
        "version": "1.0",
        # A row is cut and padded by bert_jax, whatever the file says.
        "truncation": {
            "direction": "Right",
            "max_length": 8,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [*special, added("<mask>", ids["<mask>"], lstrip=True)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": ids,
            "merges": merges,
        },
    }


def unigram(family: str) -> dict[str, Any]:
    """XLM-R's kind: the ids of sentencepiece, shifted by special tokens."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    words = ["\u2581the", "\u2581cat", "at", "th", ",", "!", "\u2581a"]
    if family == "Camembert":
        special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]
        special += ["<s>", "</s>"]
        words = words[:4]
    tokens = [*special, "\u2581", *LETTERS, ".", *words, "<mask>"]
    ids = {token: i for i, token in enumerate(tokens)}
    scores = [0.0 if t in special or t == "<mask>" else -2.0 - len(t) / 9 for t in ids]
    row, end = ({"SpecialToken": {"id": t, "type_id": 0}} for t in ("<s>", "</s>"))
    first, second = ({"Sequence": {"id": x, "type_id": 0}} for x in "AB")
    metaspace = {"replacement": "\u2581", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added(token, ids[token], lstrip=token == "<mask>")
            for token in [*special, "<mask>"]
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", **metaspace},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [row, first, end],
            "pair": [row, first, end, end, second, end],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in ("<s>", "</s>")
            },
        },
        "decoder": {"type": "Metaspace", **metaspace},
        "model": {
            "type": "Unigram",
            "unk_id": ids["<unk>"],
            "vocab": [list(pair) for pair in zip(tokens, scores, strict=True)],
            "byte_fallback": False,
        },
    }
