"""The file sets of bge and of cross-encoders, beside sentence-transformers' outputs.

Random weights, in the files that version 6.2 writes, and under the names and keys of
the models that were released first: tests/parity/README.md.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from huggingface_files import VOCABULARY
from sentence_files import PAIRS, TEXTS, stored_arrays, write_files

import bert_jax
from bert_jax.apps.convert.export import export_huggingface
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.config.embedding import Embedding
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.inference.retrieval import SearchRequest, search_files
from bert_jax.pretrained import load_pretrained
from bert_jax.tokenization import SPECIAL_TOKENS

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
QUERY = "Represent this sentence for searching relevant passages: "
FORMS = ("today", "released")


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def as_released(folder: Path) -> None:
    """Rewrite the tokenizer's files as bge-small-en-v1.5 and ms-marco-MiniLM have."""
    roles = dict(zip(ROLES, SPECIAL_TOKENS, strict=True))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(roles))
    config = {
        "clean_up_tokenization_spaces": True,
        "do_basic_tokenize": True,
        "do_lower_case": True,
        "model_max_length": 72,
        "never_split": None,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        **roles,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_bge(form: str, folder: Path) -> Path:
    write_files("bge", folder)
    if form == "today":
        return folder
    as_released(folder)
    (folder / "2_Normalize" / "config.json").unlink()
    (folder / "2_Normalize").rmdir()
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.{kind}",
        }
        for i, (path, kind) in enumerate(
            [
                ("", "models.Transformer"),
                ("1_Pooling", "models.Pooling"),
                ("2_Normalize", "models.Normalize"),
            ]
        )
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{mode}": mode == "cls_token" for mode in modes}
    pooling = {"word_embedding_dimension": 16, **flags}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    own = {"max_seq_length": 72, "do_lower_case": True}
    (folder / "sentence_bert_config.json").write_text(json.dumps(own))
    versions = {"sentence_transformers": "2.2.2", "transformers": "4.28.1"}
    general = {"__version__": versions, "prompts": {"query": QUERY}}
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(general))
    return folder


def write_cross_encoder(form: str, folder: Path) -> Path:
    write_files("cross_encoder", folder)
    if form == "released":
        as_released(folder)
        for name in ("modules", "sentence_bert_config", "config_sentence_transformers"):
            (folder / f"{name}.json").unlink()
        identity = "torch.nn.modules.linear.Identity"
        own = {"activation_fn": identity, "version": "4.0.1"}
        change(folder / "config.json", sentence_transformers=own)
    return folder


def forms_of(folder: Path, tmp_path: Path) -> list[Path]:
    """The files, a checkpoint of them, and what that is exported to."""
    imported, exported = tmp_path / "imported", tmp_path / "exported"
    write_imported(read_huggingface(epath.Path(folder)), epath.Path(imported))
    export_huggingface(str(imported), epath.Path(exported))
    return [folder, imported, exported]


@pytest.mark.parametrize("form", FORMS)
def test_bge_gives_the_vectors_of_sentence_transformers(form, tmp_path):
    expected = stored_arrays("bge", "outputs")
    difference = np.abs(expected["query"] - expected["plain"]).max()
    assert difference > 0.1, "the prompt must change the vectors"
    prompts = {"document": "", "query": QUERY} if form == "today" else {"query": QUERY}
    for folder in forms_of(write_bge(form, tmp_path / "saved"), tmp_path):
        bert = bert_jax.load(folder)
        assert bert.embedding == Embedding(
            "cls", True, "", 72, tuple(prompts), tuple(prompts.values())
        )
        assert load_pretrained(str(folder)).own_length == 72
        plain, query = bert.embed(TEXTS), bert.embed(TEXTS, prompt="query")
        # The float32 rounding of theirs and of ours, in unit vectors.
        np.testing.assert_allclose(plain, expected["plain"], rtol=0, atol=2e-6)
        np.testing.assert_allclose(query, expected["query"], rtol=0, atol=2e-6)
        hits = bert.search(TEXTS, TEXTS, k=3)
        scores = np.take_along_axis(expected["similarity"], hits.indices, axis=1)
        np.testing.assert_allclose(hits.scores, scores, rtol=0, atol=2e-6)
        found = bert.similarity(query, plain)
        np.testing.assert_allclose(found, expected["similarity"], rtol=0, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_cross_encoder_gives_the_scores_of_sentence_transformers(form, tmp_path):
    expected = stored_arrays("cross_encoder", "outputs")["scores"]
    assert np.ptp(expected) > 0.1
    pairs = [tuple(pair) for pair in PAIRS]
    for folder in forms_of(write_cross_encoder(form, tmp_path / "saved"), tmp_path):
        bert = bert_jax.load(folder)
        assert bert.config.head == "sequence_classification"
        assert bert.config.labels == ("LABEL_0",)
        scores = [prediction["value"] for prediction in bert.classify(pairs)]
        np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_cross_encoder_ranks_what_bge_has_found(form, tmp_path):
    """Both from their files, by the verb's function, on a file in BEIR's form."""
    model = write_bge(form, tmp_path / "bge")
    reranker = write_cross_encoder(form, tmp_path / "reranker")
    corpus = [{"_id": str(i), "title": "", "text": t} for i, t in enumerate(TEXTS)]
    for name, rows in (("corpus", corpus), ("queries", corpus[:1])):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    output = tmp_path / "lists.trec"
    options = {"reranker": str(reranker), "k": 3, "ignore_identical_ids": False}
    request = SearchRequest(str(tmp_path), str(model), **options)
    search_files(request, str(output))
    found = {
        fields[2]: float(fields[4])
        for fields in map(str.split, output.read_text().splitlines())
    }
    pairs = [(TEXTS[0], text) for text in TEXTS]
    scores = [p["value"] for p in bert_jax.load(reranker).classify(pairs)]
    expected = {str(i): score for i, score in enumerate(scores)}
    assert list(found) == sorted(expected, key=expected.__getitem__, reverse=True)
    for document, score in found.items():
        assert score == pytest.approx(expected[document], abs=1e-5)


@pytest.mark.parity
@pytest.mark.parametrize("form", FORMS)
def test_sentence_transformers_reads_what_is_exported(form, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    (tmp_path / "a").mkdir()
    *_, exported = forms_of(write_bge(form, tmp_path / "saved"), tmp_path / "a")
    theirs = library.SentenceTransformer(str(exported), device="cpu")
    expected = stored_arrays("bge", "outputs")
    for name, key in (("", "plain"), ("query", "query")):
        vectors = theirs.encode(TEXTS, prompt=QUERY if name else "")
        np.testing.assert_allclose(vectors, expected[key], rtol=0, atol=1e-6)
    assert theirs.similarity_fn_name == "cosine"
    (tmp_path / "b").mkdir()
    saved = write_cross_encoder(form, tmp_path / "encoder")
    *_, exported = forms_of(saved, tmp_path / "b")
    scores = library.CrossEncoder(str(exported), device="cpu").predict(PAIRS)
    expected_scores = stored_arrays("cross_encoder", "outputs")["scores"]
    np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=2e-6)
