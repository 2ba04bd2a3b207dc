"""Which examples are held out: equal texts together, each class on both sides."""

import collections
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import ExamplesConfig
from bert_jax.tasks.example_report import example_lines
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.predictions import Splits
from bert_jax.tasks.splits import hold_out, stratified_groups
from bert_jax.tasks.texts.examples import TextExample


def task(name="text-classification", **options):
    data = ExamplesConfig(split="stratified", **options)
    return finetuning_task(name, data)


def examples(*pairs):
    return [TextExample((text,), label) for text, label in pairs]


def classes(part):
    return collections.Counter(example.label for example in part)


def test_equal_texts_are_on_one_side():
    rows = [(f"text {i % 40}", "ab"[i % 2]) for i in range(200)]
    splits = hold_out(task(), examples(*rows))
    sides = [{e.texts for e in part} for part in (splits.train, splits.validation)]
    assert not sides[0] & sides[1]
    assert classes(splits.validation) == {"a": 10, "b": 10}
    # By rows, as runs that began before held them out, they are on both.
    old = dataclasses.replace(task(), data=ExamplesConfig())
    before = hold_out(old, examples(*rows))
    assert {e.texts for e in before.train} & {e.texts for e in before.validation}


def test_a_rare_class_is_on_both_sides():
    rows = [(str(i), "often") for i in range(98)] + [("x", "rare"), ("y", "rare")]
    splits = hold_out(task(), examples(*rows))
    assert classes(splits.train) == {"often": 88, "rare": 1}
    assert classes(splits.validation) == {"often": 10, "rare": 1}
    assert hold_out(task(), examples(*rows)) == splits
    once = hold_out(task(), examples(*rows[:-1]))
    assert "rare" not in classes(once.validation), "what is never learned is not scored"


def test_a_text_that_fills_the_file_is_learned_from():
    rows = [("ok", "a")] * 500 + [(str(i), "ab"[i % 2]) for i in range(100)]
    splits = hold_out(task(), examples(*rows))
    assert ("ok",) in {e.texts for e in splits.train}
    assert 50 <= len(splits.validation) <= 60


def test_equal_numbers_and_several_classes():
    rows = [("a", "1"), ("b", "1.0"), *((str(i), "0") for i in range(8))]
    splits = hold_out(task(), examples(*rows))
    assert len(splits.validation) == 2, "one of the class 1, one of the class 0"
    several = [(str(i), ("x",) if i % 2 else ("x", "y")) for i in range(20)]
    several += [("u", ("z", "x")), ("v", ("z",)), ("w", ())]
    parts = hold_out(task(multi_label=True), examples(*several))
    for part in (parts.train, parts.validation):
        assert {n for e in part for n in e.label} == {"x", "y", "z"}


def test_numbers_and_words_are_held_out_by_text_too():
    rows = [(f"text {i % 20}", float(i)) for i in range(40)]
    splits = hold_out(task("text-regression"), examples(*rows))
    assert len(splits.validation) == 4
    assert len({e.texts for e in splits.validation}) == 2


def test_a_single_text_of_each_class():
    """Rows are held out then, and it is said that they are also learned from."""
    rows = [("x", "a"), ("y", "b")] * 10
    splits = hold_out(task(), examples(*rows))
    assert classes(splits.validation) == {"a": 1, "b": 1}
    *_, line = example_lines(task(), splits)
    assert "2 of 2 validation examples are also learned from" in line


def test_a_class_for_each_text():
    rows = [(str(i), f"class {i}") for i in range(1000)]
    with pytest.raises(ValueError, match="1000 of 1000 .* 0 to score on; .*validation"):
        hold_out(task(), examples(*rows))


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sets(st.sampled_from("abcd"), max_size=1))
    ),
    st.floats(0.01, 0.9),
)
def test_each_class_of_two_groups_is_on_both_sides(groups, fraction):
    sizes, names = [size for size, _ in groups], [own for _, own in groups]
    chosen = stratified_groups(sizes, names, fraction)
    for own in map(set, {frozenset(own) for own in names}):
        sides = [i in chosen for i, other in enumerate(names) if other == own]
        assert len(set(sides)) == min(2, len(sides))
    assert not stratified_groups(sizes, names, 0.0)


@given(st.lists(st.sets(st.sampled_from("abcd"))), st.floats(0.01, 0.9))
def test_no_class_of_several_is_held_out_altogether(names, fraction):
    """Of texts with several classes, too; then the model never learned it."""
    chosen = stratified_groups([1] * len(names), names, fraction)
    left = [own for i, own in enumerate(names) if i not in chosen]
    assert set().union(*left) == set().union(*names)


def test_a_class_whose_texts_rarer_ones_keep_is_held_out_all_the_same():
    names = [{"b", "a"}, {"c", "a"}, {"c", "b"}, {"c", "b", "a"}]
    chosen = stratified_groups([1] * len(names), names, 0.1)
    assert set().union(*(names[i] for i in chosen)) == {"a", "b", "c"}


def test_classes_and_equal_texts_are_said():
    own = task()
    own = dataclasses.replace(
        own, model=dataclasses.replace(own.model, labels=("a", "b", "c"))
    )
    train = examples(("x", "a"), ("x", "a"), ("y", "a"), ("y", "b"), ("z", "b"))
    splits = Splits(train, examples(("x", "a"), ("v", "c")), examples(("z", "b")))
    assert list(example_lines(own, splits)) == [
        "classes (to learn from + to score on): a 3 + 1, b 2 + 0, c 0 + 1.",
        "equal texts: 2 of 5 examples to learn from repeat an earlier one (with "
        "different labels: 1 texts); 1 of 2 validation examples are also learned from; "
        "1 of 1 test examples are also learned from.",
    ]
    many = tuple(f"class {i}" for i in range(100))
    own = dataclasses.replace(own, model=dataclasses.replace(own.model, labels=many))
    splits = Splits(
        examples(("x", "class 7"), ("y", "class 7")), examples(("z", "class 1"))
    )
    (line,) = example_lines(own, splits)
    assert "class 7 2 + 0, class 1 0 + 1" in line and "… 88 others …" in line
