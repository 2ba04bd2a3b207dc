"""Search a corpus for queries, rank a first list again, and score what was found."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require_batch_size
from bert_jax.config.embedding import CORPUS_PROMPTS
from bert_jax.data.example_cache import content_key
from bert_jax.inference.arguments import require_count
from bert_jax.inference.batching import Unread, example_outputs
from bert_jax.inference.evaluation import examples_config_of
from bert_jax.inference.output_directory import locked_directory, require_same_job
from bert_jax.inference.predictor import Predictor, load
from bert_jax.inference.retrieval_files import (
    NOT_JUDGED,
    Collection,
    Rankings,
    counted,
    known_only,
    ranked,
    read_collection,
    read_run,
    run_lines,
)
from bert_jax.inference.vector_record import vector_record, write_matrix
from bert_jax.inference.vectors import TextCounts, warn_of_cuts, with_cut
from bert_jax.metrics.retrieval import retrieval_scores
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.atomic import local_output
from bert_jax.storage.files import (
    atomic_write,
    name_path_in_errors,
    remove_temporaries,
    require_output_file,
)
from bert_jax.tasks.pairs.examples import PairExample
from bert_jax.tasks.pairs.ranking import PairRankingTask
from bert_jax.terminal.progress import Progress

RUN_SUFFIXES = (".trec", ".run", ".txt")
VECTORS = "corpus.npy"
"""The vectors in the directory that keeps them."""
_CHUNK_PAIRS, _CHUNK_TEXTS = 2048, 8192


@dataclasses.dataclass(frozen=True)
class SearchRequest:
    """What to search, and by which models."""

    input: str
    """Directory with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""
    model: str = ""
    """Makes the vectors; empty: `run` has the first lists."""
    run: str = ""
    """Run file of TREC's form, in place of `model`."""
    reranker: str = ""
    """Cross-encoder that ranks the first lists again; empty: none."""
    split: str = "test"
    k: int = 100
    query_prompt: str | None = None
    corpus_prompt: str | None = None
    batch_size: int = 32
    corpus_vectors: str = ""
    """Directory that keeps the vectors of the corpus; empty: they are not kept."""
    ignore_identical_ids: bool = True
    """Whether a query does not find the document of its own id, as in BEIR."""


def search_files(
    request: SearchRequest, output: str = ""
) -> tuple[dict[str, float], list[str]]:
    """Search, and write the lists that were found to `output`, unless it is empty.

    That is a run file of TREC's form. Return the scores ({} without judgements), and
    notes on what the files lack. Raise FileNotFoundError if a file or a model is
    missing, ValueError if a file is damaged, or a model is of another kind.
    """
    _require_options(request, output)
    reranker = _load_reranker(request.reranker) if request.reranker else None
    collection = read_collection(Path(request.input), request.split)
    notes = list(collection.notes)
    if request.model:
        rankings = search_collection(collection, request)
    else:
        lists, others = read_run(Path(request.run)), collection.unjudged
        judged = {query: own for query, own in lists.items() if query not in others}
        rankings, left_out = known_only(judged, collection.corpus, collection.queries)
        if unjudged := [query for query in lists if query in others]:
            left_out.append(counted(unjudged, NOT_JUDGED))
        notes += [f"{request.run}: {note}, left out." for note in left_out]
    if same := not_found_for_themselves(collection, request):
        notes.append(
            f"{request.input}: {counted(same, 'queries')} that are documents, too, do "
            "not find themselves; --no-ignore-identical-ids lets them."
        )
    finds_itself = not request.ignore_identical_ids
    for query, own in rankings.items():  # the first k, as BEIR without the query itself
        pairs = [pair for pair in own.items() if finds_itself or pair[0] != query]
        rankings[query] = dict(pairs[: request.k])
    if reranker is not None:
        rankings = rerank(reranker, collection, rankings, request.batch_size)
    if output:
        content = "".join(run_lines(rankings, "bert_jax")).encode()
        with name_path_in_errors(Path(output)):
            atomic_write(output, content)
    if not collection.relevance:
        return {}, notes
    lists_only = {query: list(own) for query, own in rankings.items()}
    return retrieval_scores(lists_only, collection.relevance), notes


def _require_options(request: SearchRequest, output: str) -> None:
    if output:
        require_output_file(Path(output), *RUN_SUFFIXES)
    if bool(request.model) == bool(request.run):
        raise ValueError(
            "Pass --model, which makes the vectors to search by, or --run with a list "
            "for each query to rank again; one of them."
        )
    if request.run and not request.reranker:
        raise ValueError(
            "--run needs --reranker, the model that ranks its lists again."
        )
    for name in ("corpus_vectors", "query_prompt", "corpus_prompt"):
        if getattr(request, name) and not request.model:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} has no effect with --run; leave it out.")
    require_count("k", request.k)
    require_batch_size(request.batch_size)


def search_collection(collection: Collection, request: SearchRequest) -> Rankings:
    """Return the k documents whose vectors are nearest to each query's.

    Texts longer than a row of the model are cut.
    """
    bert = load(request.model)
    bert.embedding = with_cut(bert.embedding, bert.config)
    documents = list(collection.corpus)
    vectors: np.ndarray | list[str] = list(collection.corpus.values())
    if request.corpus_vectors:
        vectors = stored_vectors(bert, collection, request)
    # One more, in the place of the document that is the query.
    without = not_found_for_themselves(collection, request)
    hits = bert.search(
        list(collection.queries.values()),
        vectors,
        request.k + bool(without),
        request.batch_size,
        request.query_prompt,
        request.corpus_prompt,
        progress=True,
    )
    rankings: Rankings = {}
    columns = zip(collection.queries, hits.indices, hits.scores, strict=True)
    for query, rows, scores in columns:
        names = [documents[i] for i in rows]
        rankings[query] = ranked(dict(zip(names, scores.tolist(), strict=True)))
    return rankings


def not_found_for_themselves(
    collection: Collection, request: SearchRequest
) -> list[str]:
    """Return the ids of queries that are documents, too, and not to be found."""
    own = [query for query in collection.queries if query in collection.corpus]
    return own if request.ignore_identical_ids else []


def stored_vectors(
    bert: Predictor, collection: Collection, request: SearchRequest
) -> np.ndarray:
    """Return the vectors of the corpus that a directory keeps; make them if it is new.

    Raise ValueError if they are of another model, prompt or corpus.
    """
    option = "--corpus-vectors"
    directory = Path(local_output(request.corpus_vectors))
    prompt = request.corpus_prompt
    if prompt is None:
        prompt = bert.embedding.first_prompt(CORPUS_PROMPTS)
    bert.embed([], prompt=prompt)  # its options may not fit the model
    made_by = vector_record(bert.model, bert.embedding, prompt)
    content = content_key(list(collection.corpus.items()))
    record = {"verb": "search", **made_by, "corpus": content}
    path, texts = directory / VECTORS, list(collection.corpus.values())
    progress = Progress("texts of the corpus embedded", len(texts))
    counts = TextCounts()

    def parts() -> Iterator[np.ndarray]:
        for start in range(0, len(texts), _CHUNK_TEXTS):
            part = texts[start : start + _CHUNK_TEXTS]
            yield bert.embed(part, None, None, request.batch_size, prompt, counts)
            progress.advance(len(part))

    if path.exists():
        require_same_job(directory, record, option)
    else:
        with locked_directory(directory, option):
            require_same_job(directory, record, option)
            remove_temporaries(directory)  # of a search that was killed
            write_matrix(parts(), bert.config.hidden_size, path)
            warn_of_cuts(counts, bert.embedding, bert.config, "corpus")
    return np.load(path, mmap_mode="r")


def rerank(
    model: Model, collection: Collection, rankings: Rankings, batch_size: int
) -> Rankings:
    """Return the same documents for each query, by falling score of a cross-encoder."""
    data = examples_config_of(model)
    task = PairRankingTask(ExamplesConfig(max_length=data.max_length), model.config)
    pairs = [(query, document) for query, own in rankings.items() for document in own]
    progress = Progress("pairs ranked", len(pairs))
    scores: list[float] = []
    unread = Unread(task, model.tokenizer)
    for start in range(0, len(pairs), _CHUNK_PAIRS):
        examples = [
            PairExample((collection.queries[query], collection.corpus[document]))
            for query, document in pairs[start : start + _CHUNK_PAIRS]
        ]
        outputs = example_outputs(task, model, examples, batch_size)
        unread.add(outputs.split)
        scores += np.stack([row["scores"][0] for row in outputs.rows]).tolist()
        progress.advance(len(examples))
    unread.warn("pairs to rank")
    by_query: Rankings = {query: {} for query in rankings}
    for (query, document), score in zip(pairs, scores, strict=True):
        by_query[query][document] = score
    return {query: ranked(own) for query, own in by_query.items()}


def _load_reranker(path: str) -> Model:
    model = load_pretrained(path).in_target_units().placed()
    config = model.config
    is_single = model.data is not None and model.data.num_texts == 1
    if config.head != PairRankingTask.head or len(config.labels) != 1 or is_single:
        number = f" and {len(config.labels)} outputs" if config.labels else ""
        of_single = ", learned from single texts" if is_single else ""
        raise ValueError(
            f"{path} has head={config.head}{number}{of_single}; a reranker has a "
            "sequence classifier of pairs with one output, as `bert-jax finetune "
            "sentence-pairs --data.sentence-pairs.objective rank` makes."
        )
    return model
