"""Questions and documents as rows, by hand and by their properties."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from squad_texts import CONTEXT, ask, tokenizer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.tasks.answers.rows import (
    token_span,
    tokenize,
    window_of_most_context,
    windows,
)
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

TOKENIZER = tokenizer()
MODEL = BertConfig(head="question_answering")
CONFIG = ExamplesConfig(max_length=64, max_query_length=8, document_stride=16)


def rows_of(examples, **options):
    config = dataclasses.replace(CONFIG, **options)
    return tokenize(examples, TOKENIZER, MODEL, config)


def test_a_row_by_hand():
    rows = rows_of([ask()])
    tokens = TOKENIZER.tokens(rows.tokens)
    question = "[CLS] where was marie curie born ? [SEP]".split()
    document = "marie curie was born in w ##a ##r ##s ##a ##w . she studied in paris ."
    assert tokens == [*question, *document.split(), "[SEP]"]
    assert rows.second.tolist() == [8] and rows.example.tolist() == [0]
    assert rows.by_example["label"].tolist() == [[8 + 5, 8 + 10]]
    offset = rows.by_token["offset"]
    assert offset[:8].tolist() == [[-1, -1]] * 8 and offset[-1].tolist() == [-1, -1]
    pieces = [CONTEXT[a:b] for a, b in offset[8:-1]]
    assert "".join(pieces) == CONTEXT.replace(" ", "")
    max_context = rows.by_token["max_context"]
    assert max_context[8:-1].all() and not max_context[:8].any()
    assert not max_context[-1]
    for name, values in rows.by_token.items():
        assert len(values) == len(rows.tokens), name


def test_windows_by_hand():
    assert windows(10, 6, 3).tolist() == [[0, 6], [3, 9], [6, 10]]
    assert windows(6, 6, 3).tolist() == [[0, 6]]
    assert windows(0, 6, 3).tolist() == [[0, 0]]
    # Token 4 has 1 on its right in the first window and 1 on its left in the second,
    # which are of one length; token 7 has 1, and 1 in a shorter window.
    chosen = window_of_most_context(windows(10, 6, 3), 10)
    assert chosen.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]


@given(st.integers(0, 60), st.integers(1, 12), st.data())
def test_windows_cover_every_token_and_one_has_most_context(length, width, data):
    stride = data.draw(st.integers(1, width))
    spans = windows(length, width, stride)
    assert (spans[1:, 0] - spans[:-1, 0] == stride).all()
    assert (spans[:, 1] - spans[:, 0] <= width).all()
    assert spans[-1, 1] == length and (spans[:-1, 1] < length).all()
    chosen = window_of_most_context(spans, length)
    for token, window in enumerate(chosen):
        holding = [i for i, (a, b) in enumerate(spans.tolist()) if a <= token < b]
        context = [min(token - a, b - 1 - token) for a, b in spans[holding].tolist()]
        assert min(token - spans[window, 0], spans[window, 1] - 1 - token) == max(
            context
        )
        assert window in holding


def test_memory_of_windows_grows_with_the_document_and_not_its_square():
    tracemalloc.start()
    chosen = window_of_most_context(windows(20_000, 381, 128), 20_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert chosen[-1] == (20_000 - 381) // 128 + 1
    assert most < 100 * 20_000, "all 155 windows at once take 100 MB"


def test_every_token_of_a_document_has_most_context_in_one_row():
    rows = rows_of([ask()], max_length=19, document_stride=4)
    offset = rows.by_token["offset"]
    inside = offset[:, 0] >= 0
    places, counts = np.unique(offset[inside], axis=0, return_counts=True)
    max_context = rows.by_token["max_context"]
    assert len(rows) == 3 and counts.max() > 1
    assert not max_context[~inside].any()
    np.testing.assert_array_equal(np.unique(offset[max_context], axis=0), places)
    assert max_context.sum() == len(places)


def test_windows_without_the_whole_answer_point_at_cls():
    examples = [ask("Paris", id="a"), ask(None, id="b"), ask("Warsaw", id="c")]
    rows = rows_of(examples, max_length=19, document_stride=4)
    labels = rows.by_example["label"]
    for number, example in enumerate(examples):
        own = np.flatnonzero(rows.example == number)
        assert len(own) == 3
        pointing = [i for i in own.tolist() if labels[i, 0] > 0]
        assert (labels[[i for i in own if i not in pointing]] == 0).all()
        assert bool(pointing) == bool(example.answers)
        for i in pointing:
            start, end = labels[i]
            offset = rows.token_values("offset", i)
            text = CONTEXT[offset[start, 0] : offset[end, 1]]
            assert text == example.answers[0][0]


@pytest.mark.parametrize(
    "answers", [(("Warsaw", 23),), (("Warsaw", -29),), ((" ", 5),), (("", 26),), ()]
)
def test_what_cannot_be_learned_has_no_label(answers):
    example = dataclasses.replace(ask(), answers=answers)
    assert example.misplaced == bool(answers)
    assert rows_of([example]).by_example["label"].tolist() == [[-1, -1]]


def test_the_first_answer_is_learned():
    answers = (("Paris", CONTEXT.index("Paris")), ("Warsaw", 24))
    example = dataclasses.replace(ask(), answers=answers)
    label = rows_of([example]).by_example["label"]
    np.testing.assert_array_equal(label, rows_of([ask("Paris")]).by_example["label"])


def test_an_answer_inside_a_word_takes_the_pieces_that_hold_it():
    label = rows_of([ask("ars")]).by_example["label"]
    assert label.tolist() == [[8 + 6, 8 + 8]]
    # "curie" is one piece.
    assert rows_of([ask("uri")]).by_example["label"].tolist() == [[9, 9]]


def test_a_long_question_is_cut_and_counted():
    rows = rows_of([ask(question="who " * 11), ask(id="b")])
    assert rows.second.tolist() == [10, 8]
    assert rows.by_example["cut"].tolist() == [3, 0]


def test_a_document_without_tokens_is_one_row():
    rows = rows_of([ask(None, context="\x00")])
    assert TOKENIZER.tokens(rows.tokens)[-2:] == ["[SEP]", "[SEP]"]
    assert not rows.by_token["max_context"].any()


def test_offsets_leave_out_the_space_before_a_piece_of_sentencepiece(tmp_path):
    import sentencepiece

    text = tmp_path / "text.txt"
    text.write_text(f"{CONTEXT}\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=45,
        hard_vocab_limit=False,
        user_defined_symbols=list(SPECIAL_TOKENS), minloglevel=2,
    )  # fmt: skip
    model = (tmp_path / "m.model").read_bytes()
    pieces = Tokenizer({"kind": "unigram", "cased": True}, model)
    for answer in ("Warsaw", "She", "Paris.", "Marie Curie"):
        config = dataclasses.replace(CONFIG, max_length=128, max_query_length=64)
        rows = tokenize([ask(answer)], pieces, MODEL, config)
        offset = rows.by_token["offset"]
        texts = {CONTEXT[a:b] for a, b in offset[offset[:, 0] >= 0]}
        assert all(text == text.strip() for text in texts)
        start, end = rows.by_example["label"][0]
        assert CONTEXT[offset[start, 0] : offset[end, 1]] == answer


def test_token_span_by_hand():
    offsets = np.array([[0, 2], [2, 4], [5, 9]], np.int32)
    assert token_span(offsets, 1, 3) == (0, 1)
    assert token_span(offsets, 2, 5) == (1, 1)
    assert token_span(offsets, 4, 5) is None


def test_rows_too_short_for_the_stride():
    message = (
        "document_stride=17 must be at most 16, which a row of 27 tokens leaves beside "
        "max_query_length=8 and 3 special tokens; pass --data.document-stride 8"
    )
    too_long = "must be at most -3, .* pass --data.max-query-length 4 or less"
    with pytest.raises(ValueError, match=too_long):
        rows_of([ask()], max_length=8)
    assert len(rows_of([ask()], max_length=8, max_query_length=4, document_stride=1))
    both = "query-length 16 or less and --data.document-stride 6.$"
    with pytest.raises(ValueError, match=both):
        rows_of([ask()], max_length=32, max_query_length=30, document_stride=20)
    with pytest.raises(ValueError, match=message):
        rows_of([ask()], max_length=27, document_stride=17)
    assert len(rows_of([ask()], max_length=28, document_stride=17))
