"""Errors in the tags of words: in the entities that they form, or in plain labels."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.metrics.confusions import confusion_counts, counts_of_classes
from bert_jax.metrics.entities import Entity, extract_entities, to_iobes_tag
from bert_jax.metrics.entity_errors import EntityMatch, match_entities
from bert_jax.metrics.match_counts import MatchCounts
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Prediction, Predictions
from bert_jax.tasks.reporting import by_class, views
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.probabilities import calibration_of, calibration_section
from bert_jax.tasks.reporting.worst import WorstExamples, worst_section
from bert_jax.tasks.tagging.conll import Sentence, require_tags

NO_ENTITY = "no entity"
"""The gold type of a spurious entity, and the predicted type of a missed one."""
MAX_WORDS = 200
"""The number of words that are listed of a sentence."""
_ERRORS = {
    "correct": "type and boundaries as in the data",
    "type": "right boundaries, another type",
    "boundaries": "right type, other boundaries",
    "type and boundaries": "overlaps an entity of another type",
    "missed": "matches no predicted entity",
    "spurious": "matches no entity of the data",
}


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by type, confusions, kinds of errors, calibration, worst ones."""
    examples = predictions.examples
    matches: Counter[tuple[str, str]] = Counter()
    kinds, correct = Counter[str](), Counter[str]()
    outcomes: list[tuple[float, bool]] = []
    entity_matches: list[list[EntityMatch]] = []
    worst = WorstExamples()
    for i, value in enumerate(predictions.values):
        predicted = extract_entities([to_iobes_tag(tag) for tag in value["tags"]])
        gold = extract_entities(require_tags(examples[i]))
        entity_matches.append(match_entities(gold, predicted))
        wrong = [match for match in entity_matches[i] if match.error != "correct"]
        right = {m.predicted for m in entity_matches[i] if m.error == "correct"}
        own = (entity["score"] for entity in value["entities"])
        scores = dict(zip(predicted, own, strict=True))
        outcomes += [(score, entity in right) for entity, score in scores.items()]
        correct.update(entity.type for entity in right if entity)
        for match in entity_matches[i]:
            matches[_types(match)] += 1
            kinds[match.error] += 1
            if "boundaries" in match.error:
                kinds[match.boundaries] += 1
        if wrong:
            # More errors are worse; of equally many, the surer predictions.
            surest = max((scores[m.predicted] for m in wrong if m.predicted), default=0)
            worst.add(len(wrong) + surest / 2, i, map(_types, wrong))
    types = sorted(set[str]().union(*matches) - {NO_ENTITY})
    names = [*types, NO_ENTITY]
    matrix = np.array([[matches[gold, other] for other in names] for gold in names])
    sums = zip(types, matrix.sum(1).tolist(), matrix.sum(0).tolist(), strict=False)
    by_type = [MatchCounts(g, p, correct[type_]) for type_, g, p in sums]
    probabilities = np.array([score for score, _ in outcomes], np.float64)
    came_true = np.array([is_right for _, is_right in outcomes], bool)
    return {
        "calibration": calibration_of(probabilities, came_true),
        **by_class.class_scores(types, by_type),
        **by_class.confusions(names, matrix),
        "error_kinds": dict(kinds),
        **worst.listed(lambda i: _entry(examples[i], entity_matches[i])),
    }


def _types(match: EntityMatch) -> tuple[str, str]:
    gold, predicted = (entity.type if entity else NO_ENTITY for entity in match)
    return gold, predicted


def _entry(sentence: Sentence, matches: Sequence[EntityMatch]) -> JsonObject:
    """Return a sentence as JSON values; of a long one, the words from its first error.

    The entities' words count from the first one that is listed.
    """
    first_error = next(match for match in matches if match.error != "correct")
    entity = next(filter(None, first_error))
    start = entity.start if len(sentence.words) > MAX_WORDS else 0
    words = sentence.words[start : start + MAX_WORDS]

    def listed(entity: Entity | None) -> JsonObject | None:
        if entity is None:
            return None
        return {
            "type": entity.type,
            "start": max(entity.start - start, 0),
            "end": min(entity.end - start, len(words)),
        }

    return {
        "where": sentence.where(start),
        "words": list(words),
        "entities": [
            {"error": m.error, "gold": listed(m.gold), "predicted": listed(m.predicted)}
            for m in matches
            if any(e and start < e.end and e.start < start + len(words) for e in m)
        ],
    }


def sections(report: JsonObject) -> list[views.Section]:
    table = by_class.class_table(report, "Scores by type", "type", ("micro", "macro"))
    about = (
        "An entity is correct if its type and all its words are right, as conlleval "
        "counts it; the micro average is conlleval's."
    )
    shown = [views.Section("classes", "Types", about, [table])]
    confused = by_class.confusion_section(
        report,
        "An entity with other boundaries counts by its types. The row “no entity” "
        "holds the spurious entities, and the column the missed ones.",
    )
    kinds = report["error_kinds"]
    columns = [views.Column("entity"), views.Column("count", "whole")]
    columns.append(views.Column("meaning"))
    rows: list[list[views.TableCell]] = [
        [name, kinds.get(name, 0), meaning] for name, meaning in _ERRORS.items()
    ]
    shapes = [name for name in ("too long", "too short", "shifted") if name in kinds]
    if shapes:
        total = sum(kinds[name] for name in shapes)
        listed = ", ".join(f"{kinds[name]:,} {name}" for name in shapes)
        rows.append(["other boundaries", total, listed])
    confused.parts.append(views.Table("Entities by error", columns, rows))
    shown.append(confused)
    if report["calibration"]:
        what = "a predicted entity"
        shown.append(calibration_section(report["calibration"], what, "is correct"))
    note = "The sentences with the most wrong entities."
    return [*shown, worst_section(report, note, _item, unit="sentences")]


def _item(entry: JsonObject) -> views.Item:
    wrong = [match for match in entry["entities"] if match["error"] != "correct"]
    counts = Counter(match["error"] for match in wrong)
    facts = [("errors", ", ".join(f"{n} {name}" for name, n in counts.items()))]
    passages = [
        views.Passage(name, _spans(entry, name)) for name in ("gold", "predicted")
    ]
    none = {"type": NO_ENTITY}
    pairs = [
        ((m["gold"] or none)["type"], (m["predicted"] or none)["type"]) for m in wrong
    ]
    return views.Item(entry["where"], facts, passages, pairs)


def _spans(entry: JsonObject, name: str) -> list[views.MarkedSpan]:
    """Return the words of a sentence with the gold or predicted entities marked."""
    mark: views.MarkKind = "gold" if name == "gold" else "wrong"
    matches = [match for match in entry["entities"] if match[name]]
    words, spans, end = entry["words"], [], 0
    for match in sorted(matches, key=lambda match: match[name]["start"]):
        entity, is_right = Entity(**match[name]), match["error"] == "correct"
        if entity.start > end:
            spans.append(views.MarkedSpan(" ".join(words[end : entity.start])))
        text = " ".join(words[entity.start : entity.end])
        own = "right" if is_right else mark
        spans.append(views.MarkedSpan(text, own, entity.type))
        end = entity.end
    if end < len(words):
        spans.append(views.MarkedSpan(" ".join(words[end:])))
    return views.spaced(spans)


def analyse_labels(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by label, confusions, calibration and worst sentences."""
    labels = task.model.labels
    index = {name: i for i, name in enumerate(labels)}
    pairs = list(zip(predictions.examples, predictions.values, strict=True))
    gold = np.array([index[tag] for s, _ in pairs for tag in require_tags(s)])
    predicted = np.array([index[tag] for _, value in pairs for tag in value["tags"]])
    scores = np.array([word["score"] for _, value in pairs for word in value["words"]])
    counts = confusion_counts(gold, predicted, len(labels))
    worst = WorstExamples()
    for i, (sentence, value) in enumerate(pairs):
        tags = zip(require_tags(sentence), value["tags"], strict=True)
        if wrong := [(own, other) for own, other in tags if own != other]:
            worst.add(float(len(wrong)), i, wrong)
    return {
        "calibration": calibration_of(scores, gold == predicted),
        **by_class.class_scores(labels, counts_of_classes(counts)),
        **by_class.confusions(labels, counts),
        "num_words": gold.size,
        **worst.listed(lambda i: _labels_entry(pairs[i])),
    }


def _labels_entry(pair: tuple[Sentence, Prediction]) -> JsonObject:
    """Return a sentence as JSON values; a long one from its first error."""
    sentence, value = pair
    tags = list(zip(require_tags(sentence), value["tags"], strict=True))
    is_long = len(tags) > MAX_WORDS
    start = [own != other for own, other in tags].index(True) if is_long else 0
    end = start + MAX_WORDS
    return {
        "where": sentence.where(start),
        "words": list(sentence.words[start:end]),
        "labels": [own for own, _ in tags[start:end]],
        "predictions": [other for _, other in tags[start:end]],
    }


def label_sections(report: JsonObject) -> list[views.Section]:
    table = by_class.class_table(
        report, "Scores by label", "label", ("macro", "weighted")
    )
    note = f"Of {report['num_words']:,} words."
    of = "the predicted label"
    about = "The sentences with the most wrong labels; each is gold → predicted."
    return [
        views.Section("classes", "Labels", note, [table]),
        by_class.confusion_section(report),
        calibration_section(report["calibration"], of, "is right"),
        worst_section(report, about, _labels_item, unit="sentences"),
    ]


def _labels_item(entry: JsonObject) -> views.Item:
    names = ("words", "labels", "predictions")
    words = list(zip(*(entry[name] for name in names), strict=True))
    wrong = [(gold, predicted) for _, gold, predicted in words if gold != predicted]
    facts = [("wrong labels", f"{len(wrong)} of {len(words)}")]
    spans = [
        views.MarkedSpan(word)
        if gold == predicted
        else views.MarkedSpan(word, "wrong", f"{gold} → {predicted}")
        for word, gold, predicted in words
    ]
    passage = views.Passage("words", views.spaced(spans))
    return views.Item(entry["where"], facts, [passage], wrong)


_MEANINGS = {
    "f1": "of all entities, as conlleval",
    "precision": "of all entities",
    "recall": "of all entities",
    "accuracy": "fraction of words with the right tag",
}
ANALYSES = {
    "entities": Analysis(analyse, sections, _MEANINGS, parts="type"),
    "tags": Analysis(analyse_labels, label_sections),
}
