"""`bert-jax search`."""

import dataclasses
import sys
from collections.abc import Iterable

import tyro

from bert_jax.cli.start import ModelArgument, require_standard_output, scores_json
from bert_jax.config.checks import require_delimiter
from bert_jax.storage.files import require_new_file
from bert_jax.terminal.messages import UsageError, printable, say


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Find the texts of a corpus that are nearest to queries.

    --query with --corpus prints the nearest rows of a file; --input is a collection in
    BEIR's form, whose lists are written and scored.
    """

    model: ModelArgument = ""
    """Model that makes the vectors: workdir, checkpoint, Hugging Face directory or
    hf:OWNER/NAME; also --model."""
    query: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Text to search for, repeatable; with corpus, in place of input."""
    corpus: str = ""
    """File of the texts to search: .csv, .tsv, .jsonl, .parquet, or a text a line."""
    text_column: str = "text"
    """Column of corpus that holds the text."""
    delimiter: str = ""
    """Between the columns of a .csv or .tsv corpus; default: that of its header."""
    input: str = ""
    """Directory in BEIR's form: corpus.jsonl, queries.jsonl and, for scores,
    qrels/SPLIT.tsv."""
    run: str = ""
    """In place of model: run file of TREC's form with a first list for each query."""
    reranker: str = ""
    """Cross-encoder that ranks the first lists again, as objective=rank makes."""
    split: str = "test"
    """Name of the relevance judgements below qrels/."""
    k: int | None = None
    """Texts to find for each query; default: 10 of corpus, 100 of input."""
    query_prompt: str | None = None
    """Put before each query: the name of one of the model's prompts, or a text;
    default: the model's prompt query, if it has one."""
    corpus_prompt: str | None = None
    """Put before each text of the corpus; default: the model's prompt document, passage
    or corpus, if it has one."""
    corpus_vectors: str = ""
    """Directory that keeps the vectors of the corpus: the first search makes them, and
    later ones of the same model, prompt and corpus read them."""
    ignore_identical_ids: bool = True
    """Do not find a document for the query that has its id, as BEIR does."""
    batch_size: int = 32
    """Texts that are computed at once."""
    output: str = ""
    """.trec, .run or .txt file to write the lists to, in TREC's form."""
    overwrite: bool = False
    """Replace a file of that name."""

    def __post_init__(self) -> None:
        require_delimiter(self.delimiter)


_OF_CORPUS = ("query", "corpus", "text_column", "delimiter")
_OF_BOTH = ("model", "k", "batch_size", "query_prompt", "corpus_prompt")


def require_effect(options: SearchOptions, names: Iterable[str], beside: str) -> None:
    """Raise UsageError for options that are given, and that another one leaves out."""
    given = sorted(n for n in names if getattr(options, n) != getattr(SearchOptions, n))
    if given:
        raise UsageError(
            f"{', '.join(given)}: without effect with {beside}; leave it out."
        )


def search(options: SearchOptions) -> None:
    require_standard_output(options.output)
    if not options.query and not options.corpus:
        return search_collection(options)
    from bert_jax.inference.text_search import corpus_texts, text_search_lines

    if not (options.query and options.corpus):
        raise UsageError("--query and --corpus need each other: a text, and a file.")
    if not all(query.strip() for query in options.query):
        raise UsageError("query is empty; give a text to search for.")
    if not options.model:
        raise UsageError("search needs a model: name one first, or by --model.")
    names = {field.name for field in dataclasses.fields(options)}
    require_effect(options, names - {*_OF_CORPUS, *_OF_BOTH}, "--corpus")
    texts = corpus_texts(options.corpus, options.text_column, options.delimiter)
    lines = text_search_lines(
        options.model,
        options.query,
        texts,
        10 if options.k is None else options.k,
        options.batch_size,
        prompts=(options.query_prompt, options.corpus_prompt),
    )
    for line in lines:
        print(printable(line))


def search_collection(options: SearchOptions) -> None:
    from bert_jax.inference.retrieval import SearchRequest, search_files

    if not options.input:
        raise UsageError(
            "search needs --query TEXT with --corpus FILE, or --input DIRECTORY in "
            "BEIR's form."
        )
    require_effect(options, ("text_column", "delimiter"), "--input")
    values = {n: v for n, v in vars(options).items() if n not in _OF_CORPUS}
    values["k"] = 100 if values["k"] is None else values["k"]
    output = values.pop("output")
    require_new_file(output, values.pop("overwrite"))
    scores, notes = search_files(SearchRequest(**values), output)
    for note in notes:
        print(printable(note), file=sys.stderr)
    if scores:
        print(scores_json(scores))
    else:
        print("There are no judgements in qrels/ to score by.", file=sys.stderr)
    if output:
        say(output)
