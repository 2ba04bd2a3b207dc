"""Pairs that share a row: each is computed as if it had the row to itself."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import AGREEMENT, in_float64, widened

from bert_jax.config import BertConfig, MaskingConfig
from bert_jax.data.packing import build_rows, pack_pairs
from bert_jax.data.pairs import PairSpans
from bert_jax.data.records import columns
from bert_jax.data.shards import row_dtype
from bert_jax.masking.batch import MaskedBatch, mask_tokens
from bert_jax.model.attention import Visibility
from bert_jax.model.bert import compute, init_params
from bert_jax.model.encoder import Encoder, positions_in_pairs
from bert_jax.model.inputs import Inputs, inputs_of
from bert_jax.tasks.pretraining.task import (
    PretrainingBatch,
    pretraining_losses,
    pretraining_scores,
)

T, V = 32, 64
# Wide enough for what one token does to another to be far above rounding.
CONFIG = BertConfig.miniature(
    2, 32, vocab_size=V, num_attention_heads=4, initializer_range=0.3
)
WIDE = in_float64(CONFIG)
MASKING = MaskingConfig(0.3, 10, mask_token_id=4, vocab_size=V)


@pytest.fixture(scope="module")
def params():
    return jax.jit(functools.partial(init_params, CONFIG))(jax.random.key(0))


@pytest.fixture
def wide(params):
    """The parameters in float64, and computation in it."""
    with jax.enable_x64(True):
        yield widened(params)


def make_rows(segments=False):
    """Nine pairs of 5 to 17 tokens, or as many single segments, in rows of 32."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(1, 8, 9), rng.integers(1, 8, 9) * (not segments)
    ends = np.cumsum(first + second)
    middles = ends - second
    label = np.full(9, -1) if segments else rng.integers(0, 2, 9)
    pairs = PairSpans(middles - first, middles, middles, ends, label, {})
    tokens = rng.integers(5, V, ends[-1], np.int32)
    rows = build_rows(tokens, pairs, row_dtype(T, V), cls_id=2, sep_id=3, pad_id=0)
    packed = pack_pairs(rows, row_dtype(T, V, 4), pad_id=0)
    assert (packed["end"] > 0).sum(1).max() > 1 and len(packed) < 6
    return columns(packed)


mask = jax.jit(mask_tokens, static_argnums=2)


def draw(batch, key=0):
    """Packed rows under masks, as the training step sees them."""
    masked = mask(jax.random.key(key), batch, MASKING)
    labels = batch["next_sentence_label"]
    return PretrainingBatch(
        masked,
        jnp.asarray(batch["first"], jnp.int32),
        jnp.asarray(labels, jnp.int32),
    )


def apart(drawn, batch):
    """Each pair of drawn rows in a row of its own, with the masks that it has there."""
    masked = {name: np.asarray(value) for name, value in vars(drawn.masked).items()}
    input_ids = np.asarray(drawn.masked.inputs.input_ids)
    position, found, labels = np.arange(T), [], []
    for row, place in np.argwhere(batch["end"] > 0):
        first, second, end = (
            int(batch[name][row, place]) for name in ("first", "second", "end")
        )
        ids = np.zeros(T, np.int32)
        ids[: end - first] = input_ids[row, first:end]
        predicted = masked["predicted"][row]
        own = (predicted >= first) & (predicted < end) & (masked["weights"][row] > 0)
        inside = position < end - first
        found.append(
            {
                "input_ids": ids,
                "segment_ids": (inside & (position >= second - first)).astype(np.int32),
                "attention_mask": inside,
                "predicted": np.where(own, predicted - first, 0),
                "labels": masked["labels"][row],
                "weights": own.astype(np.float32),
            }
        )
        labels.append(batch["next_sentence_label"][row, place])
    fields = {name: jnp.stack([one[name] for one in found]) for name in found[0]}
    pair_labels = jnp.array(labels, jnp.int32)[:, None]
    names = ("input_ids", "segment_ids", "attention_mask")
    inputs = Inputs(*(fields.pop(name) for name in names))
    masked = MaskedBatch(inputs, **fields)
    return PretrainingBatch(masked, jnp.zeros_like(pair_labels), pair_labels)


@functools.partial(jax.jit, static_argnums=(0, 3))
def losses(config, params, drawn, pairs):
    scores = pretraining_scores(config, params, drawn)
    return pretraining_losses(scores, drawn, pairs)


def total(config, params, drawn, pairs):
    sums = losses(config, params, drawn, pairs)
    return sum(value for name, (value, _) in sums.items() if name.endswith("loss"))


@pytest.mark.parametrize(
    ("attention", "pairs"),
    [
        ("bidirectional", "nsp"),
        ("causal", "none"),
        pytest.param("bidirectional", "none", marks=pytest.mark.slow),
        pytest.param("causal", "nsp", marks=pytest.mark.slow),
    ],
)
def test_the_losses_are_those_of_the_same_pairs_apart(wide, attention, pairs):
    config = dataclasses.replace(WIDE, attention=attention)
    batch = make_rows(segments=pairs == "none")
    packed = draw(batch)
    single = apart(packed, batch)
    assert len(single.masked.labels) > len(packed.masked.labels)
    one, other = (losses(config, wide, x, pairs) for x in (packed, single))
    assert one.keys() == other.keys() and len(one) == (2 if pairs == "none" else 4)
    for name in one:
        assert one[name][1] == other[name][1] > 5, "as many tokens, or pairs, count"
        np.testing.assert_allclose(one[name][0], other[name][0], rtol=AGREEMENT)
    blurred = dataclasses.replace(
        packed,
        masked=dataclasses.replace(
            packed.masked,
            inputs=dataclasses.replace(packed.masked.inputs, pair_ids=None),
        ),
    )
    wrong = losses(config, wide, blurred, pairs)["mlm_loss"][0]
    assert abs(wrong / one["mlm_loss"][0] - 1) > 1e-3, "one text a row is another loss"


def test_so_are_the_gradients(wide):
    batch = make_rows()
    packed = draw(batch)
    single = apart(packed, batch)
    gradient = jax.jit(jax.grad(lambda p, x: total(WIDE, p, x, "nsp")))
    one, other = gradient(wide, packed), gradient(wide, single)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        # Of a key's bias the gradient is 0 but for rounding; others reach 1 to 20.
        np.testing.assert_allclose(left, right, rtol=AGREEMENT, atol=AGREEMENT)


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pair_does_not_see_its_row_mates(params, dtype, attention):
    config = dataclasses.replace(CONFIG, dtype=dtype, attention=attention)
    inputs = inputs_of(make_rows())

    @jax.jit
    def encode(ids):
        return Encoder(config).apply(
            {"params": params["encoder"]},
            ids,
            inputs.segment_ids,
            inputs.attention_mask,
            pair_ids=inputs.pair_ids,
            method="hidden_states",
        )

    ids, pairs = inputs.input_ids, np.asarray(inputs.pair_ids)
    before = np.asarray(jnp.stack(encode(ids)), np.float32)
    for number in range(1, pairs.max() + 1):
        own = pairs == number
        # Perturbed too: padding, which nobody sees.
        changed = jnp.where(own | (pairs == 0), (ids + 7) % V, ids)
        after = np.asarray(jnp.stack(encode(changed)), np.float32)
        mates = (pairs > 0) & ~own
        np.testing.assert_array_equal(before[:, mates], after[:, mates])
        assert (np.abs(before - after)[:, own].max(-1) > 1e-2).all()


def test_each_pair_has_its_own_positions_and_keys():
    pairs = jnp.array([[1, 1, 1, 2, 2, 0], [1, 2, 2, 3, 3, 3]])
    assert positions_in_pairs(pairs).tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 0, 1, 0, 1, 2],
    ]
    visible = Visibility(pairs > 0, pairs).matrix()
    assert visible[0].astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    causal = Visibility(pairs > 0, pairs, causal=True).matrix()
    np.testing.assert_array_equal(causal, np.tril(visible))


def test_a_row_without_a_pair_yields_finite_numbers(wide):
    batch = make_rows()
    batch["end"][0], batch["next_sentence_label"][0] = 0, -1
    drawn = draw(batch)
    scores = jax.jit(functools.partial(pretraining_scores, WIDE))(wide, drawn)
    assert all(np.isfinite(score).all() for score in scores)
    kept = {name: values[1:] for name, values in batch.items()}
    others = dataclasses.replace(
        draw(kept), masked=jax.tree.map(lambda values: values[1:], drawn.masked)
    )
    one, other = (losses(WIDE, wide, x, "nsp") for x in (drawn, others))
    for name in one:
        assert one[name][1] == other[name][1]
        np.testing.assert_allclose(one[name][0], other[name][0], rtol=AGREEMENT)


def test_rows_of_a_single_pair_carry_no_pair_numbers():
    """The program of unpacked rows is the one that it was before there were others."""
    batch = make_rows()
    single = {name: v[:, :1] for name, v in batch.items() if name != "tokens"}
    single["tokens"] = batch["tokens"]
    assert inputs_of(batch).pair_ids is not None
    assert inputs_of(single).pair_ids is None
    assert draw(single).masked.inputs.pair_ids is None


@pytest.mark.parametrize("unit", ["token", "whole_word", "span"])
def test_a_program_may_refuse_to_promote_ranks(params, unit):
    """By jax_numpy_rank_promotion=raise; nothing is compiled here."""
    batch, masking = make_rows(), dataclasses.replace(MASKING, unit=unit)
    config = dataclasses.replace(CONFIG, attention="causal")

    def loss(params, key):
        masked = mask_tokens(key, batch, masking, np.zeros(V, bool))
        labels = jnp.asarray(batch["next_sentence_label"], jnp.int32)
        drawn = PretrainingBatch(masked, jnp.asarray(batch["first"], jnp.int32), labels)
        vectors = compute(config, params, "embed", masked.inputs, "mean", True)
        token, position = masked.inputs.input_ids[0, 0], jnp.int32(3)
        place = (token, position, T)
        method = "next_token_scores"
        following, _ = compute(config, params, method, *place, mutable=["cache"])
        scores = pretraining_scores(config, params, drawn, key)
        losses = pretraining_losses(scores, drawn, "nsp")
        return losses["mlm_loss"][0] + vectors.sum() + following.sum()

    with jax.numpy_rank_promotion("raise"):
        jax.eval_shape(jax.grad(loss), params, jax.random.key(0))


def test_masks_of_a_packed_row_count_all_its_pairs():
    batch = make_rows()
    length = batch["end"].max(1).astype(int)
    weights = draw(batch).masked.weights
    due = [min(10, max(1, round(0.3 * int(n)))) for n in length]
    assert weights.sum(1).tolist() == due
    drawn = [draw(batch, key).masked for key in range(40)]
    for row, pairs in enumerate(np.asarray(drawn[0].inputs.pair_ids)):
        hidden = {int(pairs[m.predicted[row, 0]]) for m in drawn}
        assert hidden == set(range(1, pairs.max() + 1)), "every pair has its turn"
