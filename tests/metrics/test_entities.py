"""Entities in tags: by hand, as conlleval counts them, and as seqeval does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.entities import (
    SCHEMES,
    Entity,
    are_entity_tags,
    convert_tags,
    detect_scheme,
    entity_scores,
    extract_entities,
    mismatched_tags,
    to_iobes_tag,
    write_tags,
)
from bert_jax.metrics.match_counts import MatchCounts

# One sentence in every scheme: two places that touch, a person, and one-word entities.
ENTITIES = [
    Entity("LOC", 0, 2),
    Entity("LOC", 2, 3),
    Entity("PER", 3, 6),
    Entity("PER", 7, 8),
]
WRITTEN = {
    "IOB1": "I-LOC I-LOC B-LOC I-PER I-PER I-PER O I-PER O",
    "IOB2": "B-LOC I-LOC B-LOC B-PER I-PER I-PER O B-PER O",
    "IOBES": "B-LOC E-LOC S-LOC B-PER I-PER E-PER O S-PER O",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_by_hand(scheme):
    tags = WRITTEN[scheme].split()
    assert extract_entities(tags) == ENTITIES
    assert write_tags(ENTITIES, 9, scheme) == tags
    assert detect_scheme([["O"], tags]) == scheme
    for other in SCHEMES:
        assert convert_tags(tags, other) == WRITTEN[other].split()


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("I-X", [("X", 0, 1)]),
        ("O I-X I-X", [("X", 1, 3)]),
        ("B-X I-Y", [("X", 0, 1), ("Y", 1, 2)]),
        ("I-X I-Y I-X", [("X", 0, 1), ("Y", 1, 2), ("X", 2, 3)]),
        ("B-X B-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X O I-X", [("X", 0, 1), ("X", 2, 3)]),
        # IOBES gone wrong: no end, no beginning, two ends, one after a single.
        ("B-X I-X O", [("X", 0, 2)]),
        ("O E-X", [("X", 1, 2)]),
        ("B-X E-X E-X", [("X", 0, 2), ("X", 2, 3)]),
        ("B-X E-X I-X", [("X", 0, 2), ("X", 2, 3)]),
        ("S-X I-X E-X", [("X", 0, 1), ("X", 1, 3)]),
        ("B-X S-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X E-Y", [("X", 0, 1), ("Y", 1, 2)]),
        # A type may hold hyphens.
        ("B-a-b I-a-b I-a-c", [("a-b", 0, 2), ("a-c", 2, 3)]),
    ],
)
def test_ill_formed_tags_are_read_as_conlleval_does(tags, expected):
    assert extract_entities(tags.split()) == expected


@pytest.mark.parametrize("tag", ["B", "B-", "-X", "X-LOC", "o", "", "BLOC", "O-LOC"])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(ValueError, match=f"'{tag}' is not a tag"):
        extract_entities(["O", tag])


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["O O", ""], "IOB2"),
        (["O", "B-X O B-X"], "IOB2"),
        (["I-X B-X"], "IOB1"),
        (["O I-X"], "IOB1"),
        (["S-X"], "IOBES"),
        (["B-X E-X"], "IOBES"),
    ],
)
def test_schemes_are_told_from_what_they_write(sentences, scheme):
    assert detect_scheme([tags.split() for tags in sentences]) == scheme


@pytest.mark.parametrize(
    ("sentences", "scheme", "unlike"),
    [
        (["B-X I-X O B-X", "O I-X"], "IOB2", [(1, 1)]),
        (["O I-X I-X", "I-X O B-X"], "IOB1", [(1, 2)]),
        (["S-X O B-X E-X", "B-X O"], "IOBES", [(1, 0)]),
        (["B-X I-Y", "B-Y"], "IOB2", [(0, 1)]),
        (["O E-X"], "IOB2", [(0, 1)]),
    ],
)
def test_a_mixture_is_the_scheme_that_fewest_tags_differ_from(
    sentences, scheme, unlike
):
    tags = [each.split() for each in sentences]
    assert detect_scheme(tags) == scheme
    found = [
        (i, word)
        for i, each in enumerate(tags)
        for word in mismatched_tags(each, scheme)
    ]
    assert found == unlike


@pytest.mark.parametrize(
    ("tags", "marked"),
    [
        ("O", True),
        ("O B-X", True),
        ("U-X", True),
        ("b-x o", True),
        ("I- O", True),
        ("NN VBZ O", False),
        ("B I O", False),
        ("-LRB- , $.", False),
    ],
)
def test_plain_labels_have_no_prefix(tags, marked):
    assert are_entity_tags(tags.split()) == marked


def test_labels_of_other_models_as_tags():
    labels = "O B-X I-a-b E-X S-X L-X U-X b-x [PAD] X NN B-"
    means = "O B-X I-a-b E-X S-X E-X S-X B-x O O O O"
    assert [to_iobes_tag(label) for label in labels.split()] == means.split()


def test_labels_of_a_model_in_bmes():
    tags = map(to_iobes_tag, "B-X M-X M-X E-X S-Y".split())
    assert extract_entities(list(tags)) == [("X", 0, 4), ("Y", 4, 5)]


def test_scores_by_hand():
    gold = ["B-LOC I-LOC O B-PER", "B-LOC O", "O B-ORG"]
    guess = ["B-LOC I-LOC O B-LOC", "B-LOC I-LOC", "O B-ORG"]
    scores = entity_scores([g.split() for g in gold], [g.split() for g in guess])
    assert scores.overall == MatchCounts(gold=4, predicted=4, correct=2)
    assert scores.by_type == {
        "LOC": MatchCounts(gold=2, predicted=3, correct=1),
        "ORG": MatchCounts(1, 1, 1),
        "PER": MatchCounts(gold=1, predicted=0, correct=0),
    }
    assert list(scores.by_type) == ["LOC", "ORG", "PER"]
    assert scores.by_type["LOC"].precision == pytest.approx(1 / 3)
    assert scores.by_type["LOC"].recall == pytest.approx(1 / 2)
    assert scores.by_type["LOC"].f1 == pytest.approx(2 / 5)
    assert scores.tag_accuracy == pytest.approx(6 / 8)
    nobody = scores.by_type["PER"]
    assert (nobody.precision, nobody.recall, nobody.f1) == (0, 0, 0)


def test_no_entity_anywhere_scores_0_as_conlleval_has_it():
    scores = entity_scores([["O"]], [["O"]])
    assert scores.overall == MatchCounts(0, 0, 0)
    assert scores.overall.f1 == 0
    assert scores.by_type == {}
    assert scores.tag_accuracy == 1


def test_an_entity_ends_with_its_sentence():
    apart = entity_scores([["B-X"], ["I-X"]], [["B-X"], ["I-X"]])
    assert apart.overall.correct == 2


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="1 sentences are predicted, but 2 are gold"):
        entity_scores([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="sentence 2 has 1 predicted tags for its 2"):
        entity_scores([["O"], ["O", "O"]], [["O"], ["O"]])
    for empty in ([], [[], []]):
        with pytest.raises(ValueError, match="There are no words"):
            entity_scores(empty, empty)


def count_as_conlleval(gold, predicted):
    """Chunks in gold, in predicted, and in both, one pass over both columns at once.

    conlleval keeps whether a chunk that began in both columns is right so far, and
    decides at each boundary; for tags of IOB1 and IOB2, with an O between sentences.
    """
    in_gold = in_predicted = right = 0
    both_open = False
    last_gold = last_predicted = "O"
    columns = []
    for sentence in zip(gold, predicted, strict=True):
        columns += [*zip(*sentence, strict=True), ("O", "O")]

    def boundary(last, tag):
        """Whether a chunk cannot run on over this place."""
        return last == "O" or tag == "O" or tag[0] == "B" or last[2:] != tag[2:]

    for tag, guess in columns:
        ends = (boundary(last_gold, tag), boundary(last_predicted, guess))
        if both_open and any(ends):
            right += all(ends)
            both_open = False
        begins = (ends[0] and tag != "O", ends[1] and guess != "O")
        in_gold += begins[0]
        in_predicted += begins[1]
        if all(begins):
            both_open = tag[2:] == guess[2:]
        last_gold, last_predicted = tag, guess
    return MatchCounts(in_gold, in_predicted, right)


def columns(prefixes):
    """Sentences of gold and predicted tags, both of the same words."""
    tags = st.sampled_from(["O"] + [f"{p}-{t}" for p in prefixes for t in ("X", "Y")])
    sentence = st.lists(st.tuples(tags, tags), min_size=1, max_size=8)
    return st.lists(sentence, min_size=1, max_size=4).map(
        lambda sentences: (
            [[gold for gold, _ in words] for words in sentences],
            [[guess for _, guess in words] for words in sentences],
        )
    )


@given(columns("BI"))
def test_counts_are_those_of_conlleval(pair):
    gold, predicted = pair
    assert entity_scores(gold, predicted).overall == count_as_conlleval(gold, predicted)


@given(columns("BIES"))
def test_scores_are_those_of_seqeval(pair):
    seqeval = pytest.importorskip("seqeval.metrics")
    gold, predicted = pair
    scores = entity_scores(gold, predicted)
    for value, function in (
        (scores.overall.precision, seqeval.precision_score),
        (scores.overall.recall, seqeval.recall_score),
        (scores.overall.f1, seqeval.f1_score),
    ):
        assert value == pytest.approx(function(gold, predicted, zero_division=0))
    assert scores.tag_accuracy == pytest.approx(seqeval.accuracy_score(gold, predicted))


@given(columns("BIES"), st.randoms())
def test_scores_know_no_order_and_gold_scores_1(pair, random):
    gold, predicted = pair
    scores = entity_scores(gold, predicted)
    for counts in (scores.overall, *scores.by_type.values()):
        assert 0 <= counts.f1 <= 1
        assert 0 <= counts.correct <= min(counts.gold, counts.predicted)
    order = random.sample(range(len(gold)), len(gold))
    assert scores == entity_scores(
        [gold[i] for i in order], [predicted[i] for i in order]
    )
    perfect = entity_scores(gold, gold)
    assert perfect.overall.f1 == float(perfect.overall.gold > 0)
    assert perfect.tag_accuracy == 1


@given(columns("BIES"), st.sampled_from(SCHEMES))
def test_conversion_keeps_the_entities_and_comes_back(pair, scheme):
    for tags in pair[0]:
        written = convert_tags(tags, scheme)
        assert extract_entities(written) == extract_entities(tags)
        for other in SCHEMES:
            assert convert_tags(convert_tags(written, other), scheme) == written
        if set(written) != {"O"}:
            assert detect_scheme([written]) == scheme
