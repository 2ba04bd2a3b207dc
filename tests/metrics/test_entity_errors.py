"""Which predicted entity stands for which gold one, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.entities import Entity, extract_entities
from bert_jax.metrics.entity_errors import EntityMatch, match_entities


@pytest.mark.parametrize(
    ("gold", "predicted", "error"),
    [
        ("B-A I-A", "B-A I-A", "correct"),
        ("B-A I-A", "B-B I-B", "type"),
        ("B-A I-A", "B-A O", "boundaries"),
        ("B-A I-A", "O B-B", "type and boundaries"),
        ("B-A I-A", "O O", "missed"),
        ("O O", "B-A I-A", "spurious"),
    ],
)
def test_each_error(gold, predicted, error):
    (match,) = match_entities(
        *(extract_entities(tags.split()) for tags in (gold, predicted))
    )
    assert match.error == error


@pytest.mark.parametrize(
    ("start", "end", "shape"),
    [
        (0, 4, "too long"),
        (2, 5, "too long"),
        (2, 3, "too short"),
        (3, 4, "too short"),
        (1, 3, "shifted"),
        (3, 5, "shifted"),
    ],
)
def test_boundaries(start, end, shape):
    assert EntityMatch(Entity("A", 2, 4), Entity("A", start, end)).boundaries == shape


def test_equal_words_come_first_then_the_same_type_then_more_words():
    """The long A overlaps three gold entities; it stands for that of its type."""
    gold = [Entity("B", 0, 3), Entity("A", 3, 4), Entity("B", 4, 5)]
    predicted = [Entity("A", 0, 4), Entity("C", 4, 5)]
    assert match_entities(gold, predicted) == [
        (gold[0], None),
        (gold[1], predicted[0]),
        (gold[2], predicted[1]),
    ]
    gold = [Entity("A", 0, 1), Entity("A", 1, 4)]
    (first, second) = match_entities(gold, [Entity("A", 0, 4)])
    assert first == (gold[0], None) and second == (gold[1], Entity("A", 0, 4))


TAG = st.sampled_from("O B-A I-A B-B I-B".split())


@given(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=12))
def test_each_entity_is_in_one_match(pairs):
    gold, predicted = (extract_entities(tags) for tags in zip(*pairs, strict=True))
    matches = match_entities(gold, predicted)
    assert [m.gold for m in matches if m.gold] == gold
    assert sorted(m.predicted for m in matches if m.predicted) == sorted(predicted)
    correct = {m.gold for m in matches if m.error == "correct"}
    assert correct == set(gold) & set(predicted)
    missed = [m.gold for m in matches if m.error == "missed"]
    spurious = [m.predicted for m in matches if m.error == "spurious"]
    assert not any(a[1] < b[2] and b[1] < a[2] for a in missed for b in spurious)
