"""Pairs of texts: how files are read, what is refused, losses and scores by hand."""

import contextlib
import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from squad_texts import tokenizer

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig, OptimizerConfig
from bert_jax.config.embedding import Embedding
from bert_jax.config.sentence_pairs import SentencePairsConfig
from bert_jax.metrics.retrieval import random_ndcg, retrieval_scores
from bert_jax.runs.finetuning_setup import finetuning_model, pair_embedding
from bert_jax.tasks.kinds import finetuning_task, task_name_of
from bert_jax.tasks.pairs.examples import PairExample, text_ids
from bert_jax.tasks.pairs.ranking import PairRankingTask
from bert_jax.tasks.pairs.retrieval import (
    random_retrieval,
    ranks_among,
    retrieval_among,
)
from bert_jax.tasks.pairs.vectors import ContrastivePairsTask, ScoredPairsTask
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs, Splits
from bert_jax.tokenization import Tokenizer

TOKENIZER = tokenizer()


def data(objective="contrastive", **options):
    pairs = SentencePairsConfig(objective=objective)
    return ExamplesConfig(sentence_pairs=pairs, **options)


def read(tmp_path, text, objective="contrastive", **options):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    task = finetuning_task("sentence-pairs", data(objective, **options))
    examples = task.read(str(path))
    task.labels(examples)
    return examples


def test_columns_are_found(tmp_path):
    """Those of sentence-transformers' datasets, with hard negatives in their order."""
    header = "negative_2,positive,anchor,other,negative_1\n"
    examples = read(tmp_path, header + "n2,p,a,x,n1\nm2,q,b,x,m1\n")
    assert [example.texts for example in examples] == [
        ("a", "p", "n1", "n2"),
        ("b", "q", "m1", "m2"),
    ]
    options = {"text_columns": ("one", "two"), "label_column": "score"}
    examples = read(tmp_path, "two,one,score\nb,a,0.5\nd,c,-1\n", "cosine", **options)
    assert [example.texts for example in examples] == [("a", "b"), ("c", "d")]
    assert [example.label for example in examples] == [0.5, -1.0]


@pytest.mark.parametrize(
    ("objective", "text", "message"),
    [
        ("contrastive", "anchor,positive\na,b\nc, \n", "line 3: positive is empty"),
        ("contrastive", "anchor,positive\n,b\n", "line 2: anchor is empty"),
        ("contrastive", "a,b\n1,2\n", "has the columns a, b; name the two of a pair"),
        (
            "contrastive",
            "anchor,positive,label\na,b,1\nc,d,0\n",
            "line 2 has the label 1 in label, and objective=contrastive takes every",
        ),
        ("contrastive", "anchor,positive\na,b\nc,b\n", "nothing to tell apart; add"),
        ("contrastive", "anchor,positive\na,b\na,c\n", "nothing to tell apart; add"),
        ("contrastive", "anchor,positive\na,b\nb,a\n", "nothing to tell apart; add"),
        ("cosine", "anchor,positive\na,b\n", "line 2 has no label; name the column"),
        ("cosine", "anchor,positive,label\na,b,1\nc,d,4\n", "label=4 must be from -1"),
        ("cosine", "anchor,positive,label\na,b,1\nc,d,x\n", "must be a finite number"),
        ("cosine", "anchor,positive,label\na,b,1\nc,d,1\n", "label is 1 in all 2 rows"),
        ("rank", "anchor,positive\na,b\n", "line 2 has no label; name the column"),
        ("rank", "anchor,positive,label\na,b,1\nc,d,-1\n", "label=-1 must be from 0"),
        ("rank", "anchor,positive,negative,label\na,b,c,1\n", "hard negatives and a"),
    ],
)
def test_pairs_that_cannot_be_learned(tmp_path, objective, text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        read(tmp_path, text, objective)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: FinetuneConfig(task="sentence-pairs", batch_size=1),
            "batch_size=1 leaves a pair alone in its batch",
        ),
        (lambda: SentencePairsConfig(temperature=0.0), "temperature=0.0 must be"),
        (
            lambda: SentencePairsConfig(dimensions=(0,)),
            "dimensions: 0 must be at least",
        ),
        (
            lambda: SentencePairsConfig(objective="rank", symmetric=True),
            "symmetric=True has no effect with objective=rank",
        ),
        (
            lambda: SentencePairsConfig(objective="rank", pooling="cls"),
            "pooling=cls has no effect with objective=rank",
        ),
        (
            lambda: SentencePairsConfig("cosine", negative_columns=("n",)),
            "negative_columns=('n',) have no label",
        ),
    ],
)
def test_options_that_cannot_be(build, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


def test_vectors_are_made_as_the_source_does():
    config = FinetuneConfig(task="sentence-pairs", init_from="m")
    source = BertConfig.miniature(1, 16, max_position_embeddings=32)
    prompts = {"prompt_names": ("query",), "prompt_texts": ("q: ",)}
    theirs = Embedding("cls", **prompts)
    made = pair_embedding(config.data, source, theirs)
    assert made == Embedding("cls", True, max_tokens=32, **prompts)
    assert pair_embedding(config.data, source, None).pooling == "mean"
    apart = dataclasses.replace(theirs, pool_prompt=False)
    assert not pair_embedding(config.data, source, apart).pool_prompt
    with pytest.raises(ValueError, match="require max pooling, which is not computed"):
        pair_embedding(config.data, source, Embedding(unsupported="max pooling"))
    pairs = SentencePairsConfig(dimensions=(16,))
    own = dataclasses.replace(config.data, sentence_pairs=pairs)
    with pytest.raises(ValueError, match="dimensions: 16 but vectors have 16 numbers"):
        pair_embedding(own, source, None)


def test_a_run_of_frozen_layers_alone_is_refused():
    source = BertConfig.miniature(2, 16)
    for frozen, objective in ((1, "contrastive"), (2, "rank"), (2, "contrastive")):
        optimizer = OptimizerConfig(frozen_layers=frozen)
        config = FinetuneConfig(task="sentence-pairs", optimizer=optimizer)
        task = finetuning_task("sentence-pairs", data(objective))
        trains_all = frozen < 2 or objective == "rank"
        refused = pytest.raises(ValueError, match="=2 leaves nothing to train: .* 2 l")
        with contextlib.nullcontext() if trains_all else refused:
            labels = (1.0, 0.0) if objective == "rank" else (None, None)
            examples = [
                PairExample((text, f"{text} letter"), label)
                for text, label in zip(("door", "book"), labels, strict=True)
            ]
            finetuning_model(config, task, source, examples, epath.Path("run"))


def test_each_side_has_its_prompt(tokenizer_directory):
    tokenizer = Tokenizer.load(tokenizer_directory)
    embedding = Embedding(
        prompt_names=("query", "passage"), prompt_texts=("judge ", "baker ")
    )
    examples = [PairExample(("door", "letter", "book"))]
    task = ContrastivePairsTask(data(embedding=embedding))
    rows = task.tokenize(examples, tokenizer)
    expected = tokenizer.encode_batch(["judge door", "baker letter", "baker book"])
    for i, ids in enumerate(expected):
        assert rows.tokens[rows.starts[i] : rows.starts[i + 1]].tolist() == [
            tokenizer.cls_id,
            *ids,
            tokenizer.sep_id,
        ]
    assert rows.by_example["text_ids"].tolist() == [[0, 1, 2]]
    assert "skip" not in rows.by_example


def test_a_prompt_that_is_not_pooled(tokenizer_directory):
    """A row says where its pooling begins: after [CLS] and the prompt."""
    tokenizer = Tokenizer.load(tokenizer_directory)
    embedding = Embedding(
        prompt_names=("query",), prompt_texts=("the judge: ",), pool_prompt=False
    )
    num_tokens = len(tokenizer.encode("the judge: ").ids)
    task = ContrastivePairsTask(data(embedding=embedding))
    rows = task.tokenize([PairExample(("door", "letter"))] * 2, tokenizer)
    assert rows.by_example["skip"].tolist() == [[1 + num_tokens, 0]] * 2
    batch = rows.gather(np.array([1, -1]), 16)
    assert batch["skip"].tolist() == [[1 + num_tokens, 0], [-1, -1]]


def test_a_prompt_that_leaves_no_text(tokenizer_directory):
    """In training, all first texts would be equal."""
    tokenizer = Tokenizer.load(tokenizer_directory)
    embedding = Embedding(prompt_names=("query",), prompt_texts=("judge " * 8,))
    task = ContrastivePairsTask(data(embedding=embedding, max_length=8))
    with pytest.raises(ValueError, match="The prompt .* has .* are cut to 8, .CLS."):
        task.tokenize([PairExample(("door", "letter"))], tokenizer)


EXAMPLES = [PairExample((a, b)) for a, b in ("ap", "aq", "br", "cp")]
"""Text a has two partners, and p has two."""


def test_the_second_texts_are_ranked_among_all():
    ids = text_ids(EXAMPLES)
    vectors = np.random.default_rng(0).standard_normal((4, 2, 8), np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    vectors[1, 0], vectors[3, 1] = vectors[0, 0], vectors[0, 1]  # equal texts
    queries = {"a": vectors[0, 0], "b": vectors[2, 0], "c": vectors[3, 0]}
    documents = {"p": vectors[0, 1], "q": vectors[1, 1], "r": vectors[2, 1]}
    relevant = {"a": "pq", "b": "r", "c": "p"}
    rankings, losses = {}, []
    for name, query in queries.items():
        cosines = {text: float(query @ vector) for text, vector in documents.items()}
        rankings[name] = sorted(cosines, key=cosines.__getitem__, reverse=True)
        for right in relevant[name]:
            wrong = [cosines[t] for t in documents if t not in relevant[name]]
            weights = np.exp(np.array([cosines[right], *wrong]) / 0.1)
            losses.append(np.log(weights.sum() / weights[0]))
    grades = {name: dict.fromkeys(texts, 1) for name, texts in relevant.items()}
    expected = retrieval_scores(rankings, grades) | {"loss": np.mean(losses)}
    assert retrieval_among(vectors, ids, 0.1) == pytest.approx(expected, rel=1e-5)
    assert 0 < expected["ndcg@10"] < 1 or expected["loss"] > 0
    assert 0 < random_retrieval(ids) < 1


def many_pairs(number=60, num_texts=25):
    """Pairs of few texts, with hard negatives, and vectors that have equal cosines."""
    generator = np.random.default_rng(3)
    ids = generator.integers(0, num_texts, (number, 3))
    ids[:, 1:] += num_texts
    by_text = np.sign(generator.standard_normal((2 * num_texts, 4), np.float32)) / 2
    return by_text[ids], ids


DUPLICATES = [
    PairExample(tuple(texts)) for texts in ("ab", "ba", "cd", "dc", "ae", "ee")
]
"""Each text but e is a second text of other pairs, too; e belongs to itself."""


@pytest.mark.parametrize("block", [1, 1 << 24])
def test_a_text_is_no_wrong_text_of_itself(block):
    """A perfect model, whose vectors of the two texts of a pair are equal, scores 1."""
    ids = text_ids(DUPLICATES)
    by_text = np.eye(2, dtype=np.float32)[[0, 0, 1, 1, 0]]  # a, b, c, d, e
    found = retrieval_among(by_text[ids], ids, 0.05, block)
    for name in ("mrr@10", "map", "recall@10", "ndcg@10"):
        # The text e is as near to b as a is, and to e as a and b are.
        assert found[name] > 0.75, name
    assert found["mrr@10"] == pytest.approx((4 + 1 / 3) / 5)
    assert [value.get("rank") for value in ranks_among(by_text[ids], ids, block)] == [
        1, 1, 1, 1, None, 3,
    ]  # fmt: skip
    # Of four documents each, of which a has two; e has all five.
    expected = [random_ndcg([n], m) for n, m in ((2, 4), *[(1, 4)] * 3, (1, 5))]
    assert random_retrieval(ids) == pytest.approx(np.mean(expected))
    task = ContrastivePairsTask(data())
    tokenized = task.tokenize(DUPLICATES, TOKENIZER)
    message = "not compared with themselves, since they belong to other texts: 4 of 5 "
    assert task.warnings(Split(DUPLICATES, tokenized)) == [message + "first texts"]
    plain = [PairExample(("a", "b")), PairExample(("c", "a"))]
    assert "1 of 2" in task.warnings(Split(plain, task.tokenize(plain, TOKENIZER)))[0]
    assert not task.warnings(Split(plain[:1], task.tokenize(plain[:1], TOKENIZER)))


def test_a_text_that_belongs_to_itself_is_found():
    pairs = [PairExample((text, text)) for text in "abc"]
    vectors = np.eye(3, dtype=np.float32)[text_ids(pairs)]
    found = retrieval_among(vectors, text_ids(pairs), 0.05)
    assert found["recall@1"] == found["ndcg@10"] == 1.0


def test_negatives_that_are_texts_of_their_pair_are_not_ranked():
    task = PairRankingTask(data("rank"))
    examples = [PairExample(tuple(texts)) for texts in ("abbc", "abca", "abbb")]
    values = [
        {"score": 3.0, "negative_scores": [3.0, 1.0]},
        {"score": 1.0, "negative_scores": [2.0, 9.0]},
        {"score": 1.0, "negative_scores": [1.0, 1.0]},
    ]
    scores = task.official_scores(Predictions(examples, values))
    assert scores["mrr@10"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    split = Split(examples, task.tokenize(examples, TOKENIZER))
    message = "not ranked, since they are texts of their pair: 4 negatives"
    assert task.warnings(split) == [message]
    rows = [
        {"scores": np.array([v["score"], *v["negative_scores"]], np.float32)}
        for v in values
    ]
    first, second, third = task.rankings_among(SplitOutputs(split, rows))
    rule, value = task.baseline(Splits([], examples))
    assert rule == "mrr@10 of a random order"
    assert value == pytest.approx((3 / 4 + 3 / 4 + 1) / 3), "of what is ranked"
    labelled = [PairExample(("a", "b", "c"), 1.0), PairExample(("a", "d", "c"), 0.2)]
    name, _ = task.baseline(Splits([], labelled))
    assert name == "correlation of a constant"
    assert (first["rank"], first["first"], second["first"]) == (1, (0, 1), (1, 2))
    assert second["rank"] == 2 and third == {}


@pytest.mark.parametrize("block", [1, 100, 400, 1 << 24])
def test_the_blocks_change_nothing(block):
    """Beside the ranks and losses of each pair alone, in float64."""
    vectors, ids = many_pairs()
    documents = {
        t: v
        for row, v in zip(ids, vectors, strict=True)
        for t, v in zip(row[1:].tolist(), v[1:], strict=True)
    }
    queries = {row[0]: v[0] for row, v in zip(ids.tolist(), vectors, strict=True)}
    pairs = set(map(tuple, ids[:, :2].tolist()))
    rankings, losses = {}, []
    for query, vector in queries.items():
        scores = {t: float(vector @ documents[t]) for t in sorted(documents)}
        # Of equal ones, the lower number stands first.
        rankings[query] = sorted(scores, key=lambda t, s=scores: -s[t])
        wrong = [s for t, s in scores.items() if (query, t) not in pairs]
        for text in (t for q, t in pairs if q == query):
            values = np.array([scores[text], *wrong]) / 0.05
            losses.append(np.logaddexp.reduce(values) - values[0])
    grades = {q: {t: 1 for a, t in pairs if a == q} for q in queries}
    expected = retrieval_scores(rankings, grades) | {"loss": np.mean(losses)}
    found = retrieval_among(vectors, ids, 0.05, block)
    assert found == pytest.approx(expected, rel=1e-6)


def test_where_every_text_is_right_the_loss_is_0():
    vectors = np.eye(4, dtype=np.float32)[[[0, 1], [0, 2]]]
    found = retrieval_among(vectors, np.array([[0, 1], [0, 2]]), 0.05)
    assert found["loss"] == 0.0 and found["recall@10"] == 1.0


def test_the_vectors_of_a_run_that_diverges():
    vectors, ids = many_pairs()
    found = retrieval_among(np.full_like(vectors, np.nan), ids, 0.05)
    assert np.isnan(found["loss"])


def test_cosines_are_near_their_labels():
    task = ScoredPairsTask(data("cosine"))
    vectors = jnp.array([[[1.0, 0.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]])
    batch = {"label": jnp.array([0.5, jnp.nan])}
    total, count = task.label_loss(vectors, batch)
    # (0.6 - 0.5)², where the rounding of 0.6 in float32 is 6e-7 of the difference.
    assert (float(total), float(count)) == (pytest.approx(0.01, rel=1e-5), 1.0)


def test_the_losses_of_ranking_by_hand():
    task = PairRankingTask(data("rank"))
    row = jnp.array([0, 1, -1])
    scores = jnp.array([[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    total, count = task.label_loss(scores, {"row": row})
    expected = np.log1p(np.exp(-2)) + np.log1p(np.exp(1))
    assert (float(total), float(count)) == (pytest.approx(expected), 2.0)
    labels = jnp.array([1.0, 0.25, jnp.nan])
    total, _ = task.label_loss(scores[:, :1], {"row": row, "label": labels})
    assert float(total) == pytest.approx(np.log1p(np.exp(-2)) + np.log(2))


def test_the_scores_of_ranking_by_hand():
    task = PairRankingTask(data("rank"))
    examples = [PairExample(("a", "b", "c", "d"))] * 3
    values = [
        {"score": 3.0, "negative_scores": [1.0, 2.0]},
        {"score": 1.0, "negative_scores": [1.0, 0.0]},
        {"score": 1.0, "negative_scores": [2.0, 3.0]},
    ]
    scores = task.official_scores(Predictions(examples, values))
    assert scores["mrr@10"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert scores["recall@1"] == pytest.approx(1 / 3)
    name, value = task.baseline(Splits(examples, examples))
    assert name.startswith("mrr@10")
    assert value == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_the_task_of_a_model():
    assert task_name_of(BertConfig(head="encoder")) == "sentence-pairs"
    ranking = BertConfig(
        head="sequence_classification", labels=("a",), problem_type="regression"
    )
    assert task_name_of(ranking) == "text-regression"
    assert task_name_of(ranking, data("rank")) == "sentence-pairs"


def test_an_objective_of_another_head_is_refused():
    model = BertConfig(head="encoder")
    assert task_name_of(model, data("cosine")) == "sentence-pairs"
    with pytest.raises(ValueError, match=r"objective=rank is of another head .* encod"):
        task_name_of(model, data("rank"))
