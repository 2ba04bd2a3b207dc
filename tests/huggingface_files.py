"""Model directories as transformers saves them, from tests/parity/heads.npz."""

import dataclasses
import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from bert_jax.tokenization import SPECIAL_TOKENS

PARITY = Path(__file__).parent / "parity"
HEADS = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)
LETTERS = string.ascii_lowercase
VOCABULARY = (
    *SPECIAL_TOKENS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "the",
    "cat",
    "mat",
)


@dataclasses.dataclass
class Files:
    """What a directory shall hold; tests change it before they write it."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    vocabulary: tuple[str, ...] = VOCABULARY

    def rename(self, old: str, new: str) -> None:
        """Replace a part of every tensor's name."""
        self.tensors = {k.replace(old, new): v for k, v in self.tensors.items()}

    def write(self, folder: Path) -> Path:
        """Write all; makes `folder`."""
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        safetensors.numpy.save_file(self.tensors, folder / "model.safetensors")
        return self.write_tokenizer(folder)

    def write_shards(self, folder: Path) -> Path:
        """As `write`, in two files with an index."""
        self.write(folder)
        (folder / "model.safetensors").unlink()
        names = sorted(self.tensors)
        places = {}
        for number, part in enumerate((names[::2], names[1::2]), 1):
            file = f"model-{number:05}-of-00002.safetensors"
            chosen = {name: self.tensors[name] for name in part}
            safetensors.numpy.save_file(chosen, folder / file)
            places |= dict.fromkeys(part, file)
        index = json.dumps({"metadata": {}, "weight_map": places})
        (folder / "model.safetensors.index.json").write_text(index)
        return folder

    def write_tokenizer(self, folder: Path) -> Path:
        """Write the vocabulary and its casing."""
        (folder / "vocab.txt").write_text("\n".join(self.vocabulary) + "\n")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
        return folder


def stored(head: str) -> Files:
    """The files of one head."""
    with np.load(PARITY / "heads.npz") as npz:
        config = json.loads(str(npz[f"heads/{head}/config"]))
        content = npz[f"heads/{head}/safetensors"].tobytes()
    return Files(config, safetensors.numpy.load(content))


def reference(head: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The inputs, and what transformers computes of them."""
    with np.load(PARITY / "heads.npz") as npz:
        found = []
        for prefix in ("inputs/", f"heads/{head}/outputs/"):
            names = [name for name in npz if name.startswith(prefix)]
            found.append({name.removeprefix(prefix): npz[name] for name in names})
    return found[0], found[1]
