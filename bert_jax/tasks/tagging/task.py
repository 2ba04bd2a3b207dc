"""Token classification: a tag for each word, and the entities that the tags form."""

import dataclasses
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import ExamplesConfig
from bert_jax.data.examples import TokenizedExamples
from bert_jax.metrics.entities import (
    Entity,
    Scheme,
    conlleval_scores,
    convert_tags,
    extract_entities,
    mismatched_tags,
    tag_accuracy,
    to_iobes_tag,
    write_tags,
)
from bert_jax.storage.files import JsonObject
from bert_jax.tables.lines import STDIN, numbered, suffix_of
from bert_jax.tables.read import is_table
from bert_jax.tables.rows import TableRow, missing_column_message, text_of
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import (
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
)
from bert_jax.tasks.splits import split_file
from bert_jax.tasks.tagging import entity_report
from bert_jax.tasks.tagging.conll import (
    TAG_FIELDS,
    Sentence,
    no_tags_message,
    read_sentences,
    require_tags,
    sentence_from_row,
    write_sentences,
)
from bert_jax.tasks.tagging.rows import learned_scheme, sentence_from_text, tokenize
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.graphemes import whole_characters

_OTHER_PREFIX = re.compile(r"[BIES][_.:/|].+|.+[-_.:/|][BIES]")
"""A tag of an entity that is not written as B-PER."""
_COLUMNS = (".conll", ".conllu", ".bio", ".iob", ".iob2")
_TAGGED_WORD = re.compile(r"\S+([ \t]+\S+)*[ \t]+(O|[BILEUS]-\S+)[ \t\r]*")
_HEAD_ROWS = 20
PUBLISHED = (
    ("train.txt", "valid.txt", "test.txt"),
    ("train.txt", "dev.txt", "test.txt"),
    ("eng.train", "eng.testa", "eng.testb"),
    ("train.conll", "dev.conll", "test.conll"),
    ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    ("train.jsonl", "validation.jsonl", "test.jsonl"),
)
"""The training, validation and test files of published datasets."""


@final
@dataclasses.dataclass(frozen=True)
class TokenClassificationTask(FinetuningTask):
    """A tag for each word, read from and written to CoNLL files or JSON lines."""

    name = "token-classification"
    head = "token_classification"
    analyses = entity_report.ANALYSES

    def report_kind(self, predictions: Predictions) -> str:
        return "tags" if learned_scheme(self.model) is None else "entities"

    def read(self, name: str) -> list[Sentence]:
        path = split_file(name, self.data.path, PUBLISHED)
        columns = self.data.label_columns
        fields = TAG_FIELDS if columns == ExamplesConfig().label_columns else columns
        return read_sentences(path, self.data.labels, fields, self.data.skip_damaged)

    def texts(self, example: Sentence) -> tuple[str, ...]:
        return example.words

    def rows_to_predict(self, source: str, **options: Any) -> Iterator[TableRow]:
        rows = super().rows_to_predict(source, **options)
        if is_table(source):
            return rows
        # Of standard input, a line is answered before the next one comes.
        head = [] if source == STDIN else list(itertools.islice(rows, _HEAD_ROWS))
        lines = [str(row.values.get(self.text_column)) for row in head]
        tagged = [bool(_TAGGED_WORD.fullmatch(line)) for line in lines if line.strip()]
        if suffix_of(source) in _COLUMNS or (len(tagged) > 1 and all(tagged)):
            raise ValueError(
                f"{source} is a file of columns, which `bert-jax evaluate` reads; "
                "predict takes a text a line, or rows with a text or with tokens."
            )
        return itertools.chain(head, rows)

    def example_without_label(self, row: TableRow) -> Sentence:
        """Return the sentence of `tokens`, or of the text column.

        Entities are located in characters for a text, and in tokens for tokens.
        """
        if "tokens" in row.values and self.data.text_columns in ((), ("tokens",)):
            return sentence_from_row(row)
        return sentence_from_text(text_of(row, self.text_column))

    def labels(self, examples: Sequence[Sentence]) -> tuple[str, ...]:
        """Return `O`, then the other tags of training, sorted; or `data.labels`.

        Tags are those of the file's scheme; IOB1 is learned as IOB2, in which a tag
        does not depend on the one before. Plain labels are sorted, O among them.
        """
        first, column = examples[0], self.data.label_columns[0]
        if first.columns and column != ExamplesConfig.label_column:
            raise ValueError(
                f"{first.path} is a file of columns, which have no names, and the last "
                f"one holds the tags; leave label_column={column} out, and cut the "
                "file, for example by `cut -d' ' -f1,2`."
            )
        if first.fields:
            name = TAG_FIELDS[0] if column == ExamplesConfig.label_column else column
            message = missing_column_message(first.where(0), name, first.fields)
            raise ValueError(f"{message} Name the one with the tags by --label-column.")
        if first.tags is None:
            reason = "nothing can be learned from words alone"
            raise ValueError(no_tags_message(first, reason))
        if self.data.labels:
            return self.data.labels
        scheme: Scheme | None = "IOB2" if first.scheme == "IOB1" else first.scheme
        tags = {tag for sentence in examples for tag in sentence.tags_in(scheme)}
        if scheme is None and len(tags) > 1:
            return tuple(sorted(tags))
        if scheme is None:
            raise ValueError(
                f"{first.path}: every tag is {first.tags[0]!r}; nothing can be learned."
            )
        if tags <= {"O"}:
            raise ValueError(
                f"{first.path} has no entity: every tag is O; nothing can be learned."
            )
        return ("O", *sorted(tags - {"O"}))

    def label_warnings(self, examples: Sequence[Sentence]) -> list[str]:
        lines, others = super().label_warnings(examples), {*self.model.labels} - {"O"}
        is_plain = learned_scheme(self.model) is None and "O" in self.model.labels
        if is_plain and all(map(_OTHER_PREFIX.fullmatch, others)):
            lines.append(
                f"Tags such as {min(others)!a} are learned as plain labels, and scored "
                "by accuracy alone; if they are of entities, write them as B-PER."
            )
        tags = itertools.chain.from_iterable(one.tags or () for one in examples)
        if learned_scheme(self.model) == "IO" and any(tag[:2] == "B-" for tag in tags):
            lines.append(
                "The labels have no B-: entities of one type that touch are learned as "
                "one; --data.labels with B-, too, keeps them apart."
            )
        return lines

    def check(self, examples: Sequence[Sentence]) -> None:
        scheme, labels = learned_scheme(self.model), self.model.labels
        for sentence in examples:
            for i, tag in enumerate(sentence.tags_in(scheme)):
                if tag not in labels:
                    original = (sentence.tags or ())[i]
                    converted = "" if tag == original else f" ({tag} in {scheme})"
                    raise ValueError(
                        f"{sentence.where(i)}: tag {original!r}{converted} is none of "
                        f"the model's: {', '.join(labels)}. Correct it; or learn it, "
                        f"by --data.labels {' '.join((*labels, tag))}; or rename a tag "
                        "of a trained model by --data.label-names OLD=NEW."
                    )

    def tokenize(
        self, examples: Sequence[Sentence], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        return tokenize(examples, tokenizer, self.model, self.data)

    def outputs(self, scores: Float[Array, "B T C"]) -> dict[str, jax.Array]:
        """Return the most probable `tag` int32 [B, T], and its `probability` [B, T]."""
        return {
            "tag": jnp.argmax(scores, axis=-1).astype(jnp.int32),
            "probability": jnp.max(jax.nn.softmax(scores), axis=-1),
        }

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return the `tags` of the words, and the `entities` that they form.

        An entity is {type, text, start, end, score}: its first word and the one after
        its last, or for plain text its characters; the score is the mean probability of
        its tags. For a model of plain labels, `words` instead: each word with its `tag`
        in place of a type.
        """
        examples, tokenized = outputs.split.examples, outputs.split.tokenized
        tags: list[list[str]] = [[] for _ in examples]
        probabilities: list[list[float]] = [[] for _ in examples]
        for row, values in enumerate(outputs.rows):
            # Each word has one first token, and words and rows are in order.
            first = np.flatnonzero(tokenized.token_values("word", row) >= 0)
            i = tokenized.example[row]
            tags[i] += [self.model.labels[tag] for tag in values["tag"][first]]
            probabilities[i] += values["probability"][first].tolist()
        plain = learned_scheme(self.model) is None
        columns = zip(examples, tags, probabilities, strict=True)
        return [
            {"tags": own} | _chunks(sentence, own, scores, plain)
            for sentence, own, scores in columns
        ]

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return conlleval's scores; for plain labels, only `accuracy`.

        For entities: `f1`, `precision`, `recall`, the `accuracy` of tags, `f1_TYPE`.
        """
        predicted = self._file_tags(predictions)
        gold = [require_tags(sentence) for sentence in predictions.examples]
        if learned_scheme(self.model) is None:
            return {"accuracy": tag_accuracy(gold, predicted)}
        return conlleval_scores(gold, predicted)

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        """Write predictions.txt: the file's columns, and one more with predicted tags.

        They are in the file's own scheme.
        """
        name = "predictions.txt"
        tags = self._file_tags(predictions)
        write_sentences(predictions.examples, tags, directory / name)
        return [name]

    def _file_tags(self, predictions: Predictions) -> list[list[str]]:
        """Return the predicted tags in each file's own scheme.

        Tags in the model's own scheme are not changed: the rules of conlleval cover
        ill-formed ones. No file is in BILOU.
        """
        scheme = learned_scheme(self.model)
        if scheme is None:
            return [value["tags"] for value in predictions.values]
        is_bilou = any(re.match("[LU]-", label) for label in self.model.labels)
        kept = (None,) if is_bilou else (None, scheme)
        tags = []
        pairs = zip(predictions.examples, predictions.values, strict=True)
        for sentence, value in pairs:
            own = [to_iobes_tag(tag) for tag in value["tags"]]
            changes = sentence.scheme not in kept
            tags.append(convert_tags(own, sentence.scheme) if changes else own)
        return tags

    def warnings(self, split: Split) -> list[str]:
        """Report tags outside the file's scheme, and sentences that were split."""
        num_split = int((np.bincount(split.tokenized.example) > 1).sum())
        lines = [
            f"split into several rows of {self.data.max_length} tokens: "
            f"{num_split} of {len(split.examples)} sentences"
        ] * (num_split > 0)
        tagged = [sentence for sentence in split.examples if sentence.tags]
        if tagged and tagged[0].scheme is None:
            path = tagged[0].path
            return [f"{path}: plain labels, not entities; scored by accuracy", *lines]
        ill_formed = [
            (sentence, i)
            for sentence in tagged
            if sentence.scheme
            for i in mismatched_tags(sentence.tags or (), sentence.scheme)
        ]
        if not ill_formed:
            return lines
        sentence, i = ill_formed[0]
        total = sum(len(sentence.words) for sentence in split.examples)
        return [
            f"{sentence.path}: {len(ill_formed)} of {total} tags are ill-formed in "
            f"{sentence.scheme}, and are read as conlleval reads them; the first is "
            f"{(sentence.tags or ())[i]!r} in {numbered(sentence.path)} "
            f"{sentence.line_of(i)}",
            *lines,
        ]

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the name and the score of the baseline that a model must beat.

        For entities, the F1 of a dictionary lookup: from left to right, the longest
        word sequence that was an entity in training gets the type it mostly had there
        (Tjong Kim Sang & De Meulder 2003, §3). For plain labels, the accuracy of each
        word's most common label in training; a new word gets the most common label of
        all words.
        """
        gold = [require_tags(sentence) for sentence in splits.validation]
        first = splits.train[0]
        is_plain = first.scheme is None and first.tags is not None
        counts = defaultdict[tuple[str, ...], Counter[str]](Counter)
        for sentence in splits.train:
            tags = require_tags(sentence) if is_plain else sentence.tags or ()
            chunks = [Entity(tag, i, i + 1) for i, tag in enumerate(tags)]
            for type_, start, end in chunks if is_plain else extract_entities(tags):
                counts[sentence.words[start:end]][type_] += 1
        types = {words: own.most_common(1)[0][0] for words, own in counts.items()}
        if is_plain:
            default = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
            words = (sentence.words for sentence in splits.validation)
            labels = [[types.get((word,), default) for word in own] for own in words]
            return "each word's commonest tag", tag_accuracy(gold, labels)
        labels = [
            write_tags(
                list(_look_up(sentence.words, types)), len(sentence.words), "IOB2"
            )
            for sentence in splits.validation
        ]
        return "training-dictionary lookup", conlleval_scores(gold, labels)["f1"]

    def has_label(self, example: Sentence) -> bool:
        return example.tags is not None


def _chunks(
    sentence: Sentence, tags: list[str], probabilities: list[float], plain: bool
) -> Prediction:
    """Return the `words`, each with its plain `tag`, or the `entities` of the tags."""
    name, kind = ("words", "tag") if plain else ("entities", "type")
    chunks = [Entity(tag, i, i + 1) for i, tag in enumerate(tags)]
    if not plain:
        chunks = extract_entities([to_iobes_tag(tag) for tag in tags])
    listed: list[JsonObject] = []
    for type_, start, end in chunks:
        text = " ".join(sentence.words[start:end])
        score = sum(probabilities[start:end]) / (end - start)
        if sentence.offsets:
            first, last = sentence.offsets[start][0], sentence.offsets[end - 1][1]
            start, end = whole_characters(sentence.text, first, last)
            text = sentence.text[start:end]
        place = {"text": text, "start": start, "end": end, "score": score}
        listed.append({kind: type_} | place)
    return {name: listed}


def _look_up(
    words: tuple[str, ...], types: dict[tuple[str, ...], str]
) -> Iterator[Entity]:
    """Yield the entities of `types` in a sentence, the longest one at each word."""
    max_words = max(map(len, types), default=0)
    start = 0
    while start < len(words):
        for end in range(min(start + max_words, len(words)), start, -1):
            if words[start:end] in types:
                yield Entity(types[words[start:end]], start, end)
                break
        else:
            end = start + 1
        start = end
