"""`bert-jax search`."""

import dataclasses
import sys

from bert_jax.cli.start import Model, scores_json
from bert_jax.storage.files import require_new_file
from bert_jax.terminal.messages import printable, say


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Find the texts of a corpus that belong to queries, and score what was found."""

    model: Model = ""
    """Model that makes the vectors: workdir, checkpoint, Hugging Face directory or
    hf:OWNER/NAME; also --model."""
    input: str
    """Directory in BEIR's form: corpus.jsonl, queries.jsonl and, for scores,
    qrels/SPLIT.tsv."""
    run: str = ""
    """In place of model: run file of TREC's form with a first list for each query."""
    reranker: str = ""
    """Cross-encoder that ranks the first lists again, as objective=rank makes."""
    split: str = "test"
    """Name of the relevance judgements below qrels/."""
    k: int = 100
    """Texts to find for each query."""
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


def search(options: SearchOptions) -> None:
    from bert_jax.inference.retrieval import SearchRequest, search_files

    values = dict(vars(options))
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
