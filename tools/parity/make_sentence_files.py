"""Makes sentence_files.npz: files that sentence-transformers writes, and its outputs.

A model of vectors as bge (CLS pooling, normalized, a prompt for queries), and a
cross-encoder with one label, both of random weights.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from reference import HERE, save
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

sys.path.insert(0, str(HERE.parent))
from huggingface_files import VOCABULARY
from sentence_files import PAIRS, TEXTS

QUERY = "Represent this sentence for searching relevant passages: "
SHAPE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 80,
}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = {"bge": bge(root), "cross_encoder": cross_encoder(root)}
        tree = {
            name: {"files": files_of(root / name), "outputs": outputs}
            for name, outputs in made.items()
        }
    save(HERE / "sentence_files.npz", {}, tree)


def bge(root: Path) -> dict[str, np.ndarray]:
    """Writes the model; returns its vectors without and with the prompt of queries."""
    base = write_base(root / "a", transformers.BertModel, seed=0)
    model = SentenceTransformer(
        modules=[
            Transformer(base, max_seq_length=72),
            Pooling(SHAPE["hidden_size"], pooling_mode="cls"),
            Normalize(),
        ],
        prompts={"query": QUERY},
        device="cpu",
    )
    model.save_pretrained(str(root / "bge"))
    plain = model.encode(TEXTS)
    query = model.encode(TEXTS, prompt_name="query")
    similarity = model.similarity(query, plain).numpy()
    return {"plain": plain, "query": query, "similarity": similarity}


def cross_encoder(root: Path) -> dict[str, np.ndarray]:
    """Writes the model; returns the score of each pair."""
    cls = transformers.BertForSequenceClassification
    base = write_base(root / "b", cls, seed=1, num_labels=1)
    model = CrossEncoder(base, device="cpu", activation_fn=torch.nn.Identity())
    model.save_pretrained(str(root / "cross_encoder"))
    return {"scores": model.predict(PAIRS)}


def write_base(folder: Path, cls: type, seed: int, **options: int) -> str:
    """Writes a BERT of random weights, each a multiple of 1/32, and its tokenizer."""
    model = cls(transformers.BertConfig(**SHAPE, **options))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = 0.3 * rng.standard_normal(tuple(parameter.shape))
            if "LayerNorm.weight" in name:
                values += 1
            parameter.copy_(torch.from_numpy(np.round(32 * values) / 32))
    model.save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY) + "\n")
    tokenizer = transformers.BertTokenizer(vocab=str(vocabulary), model_max_length=72)
    vocabulary.unlink()
    tokenizer.save_pretrained(folder)
    return str(folder)


def files_of(folder: Path) -> dict[str, np.ndarray]:
    """The bytes of each file but the model card, by its path."""
    return {
        str(path.relative_to(folder)): np.frombuffer(path.read_bytes(), np.uint8)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".md"
    }


if __name__ == "__main__":
    main()
