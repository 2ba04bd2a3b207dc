"""A model as a language model: what it continues, and how probable a text is to it."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from bert_jax.config import BertConfig
from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.inference.arguments import (
    is_several,
    require_count,
    require_text,
    require_texts,
)
from bert_jax.inference.batching import (
    compiled,
    compute_rows,
    compute_texts,
    numbered,
    rows_of,
    warn_untrained_positions,
)
from bert_jax.model.bert import compute
from bert_jax.model.generation import Sampling, generate
from bert_jax.model.inputs import inputs_of_tokenized
from bert_jax.pretrained import Model
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tokenization import Tokenizer

MASKS = ("[MASK]", "<mask>")
"""Names of the mask token, of which a model has one."""
_LARGEST = 1e6  # of a temperature: all tokens are then as probable
_GENERATE = jax.jit(generate, static_argnums=0)


def require_head(model: Model, head: str, what: str) -> None:
    """Raise ValueError if a model does not have the head that `what` needs."""
    if head not in model.params:
        raise ValueError(
            f"The model has no {head} head (head={model.config.head}), which {what} "
            "needs; load a pretrained model that has one."
        )


def require_attention(model: Model, attention: str, what: str) -> None:
    """Raise ValueError unless the model has the attention that `what` needs."""
    if model.config.attention != attention:
        raise ValueError(
            f"The model has attention={model.config.attention}, but {what} needs "
            f"{attention}; load a model that was pretrained with "
            f"objective={'causal_lm' if attention == 'causal' else 'masked_lm'}."
        )


def masked_segments(
    tokenizer: Tokenizer, texts: Sequence[str], names: Sequence[str]
) -> list[tuple[list[int]]]:
    """Return the ids of each text, in which [MASK] and <mask> are the mask token.

    Raise ValueError if a text, which is called by its name, holds none.
    """
    segments = []
    for what, text in zip(names, texts, strict=True):
        for name in MASKS:
            text = text.replace(name, tokenizer.mask_token)
        ids = tokenizer.encode(text, mask_token=True).ids.tolist()
        if tokenizer.mask_id not in ids:
            raise ValueError(
                f"{what} holds no {tokenizer.mask_token}; write it in place of each "
                "word that the model is to fill in."
            )
        segments.append((ids,))
    return segments


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _best_tokens(
    config: BertConfig,
    mask_id: int,
    k: int,
    num_masks: int,
    params: Params,
    batch: DeviceBatch,
) -> PyTree:
    """Return the k best tokens at each row's first masks: probabilities, ids [B, P, k].

    Of equal ones the lower id comes first. A row with fewer masks has other positions
    after them. The whole vocabulary's scores of many texts would fill the memory.
    """
    inputs = inputs_of_tokenized(batch)
    no_mask = inputs.input_ids != mask_id
    positions = jnp.argsort(no_mask, axis=1, stable=True)[:, :num_masks]
    filled = compute(config, params, "fill", inputs, positions)
    return jax.lax.top_k(filled, min(k, filled.shape[-1]))


def fillings(model: Model, text: Any, k: int, batch_size: int) -> Any:
    """Return the k most probable tokens for each mask."""
    is_list = is_several(text)
    texts = require_texts("text", text if is_list else [require_text("text", text)])
    require_head(model, "masked_lm", "fill_mask")
    require_attention(model, "bidirectional", "fill_mask")
    k = require_count("k", k)
    names = [f"text {i}" if is_list else "The text" for i in range(len(texts))]
    tokenizer = model.tokenizer
    segments = masked_segments(tokenizer, texts, names)
    counts = [ids.count(tokenizer.mask_id) for (ids,) in segments]
    # A power of two: few programs are compiled.
    num_masks = 1 << (max(counts, default=1) - 1).bit_length()
    program = functools.partial(
        _best_tokens, model.config, tokenizer.mask_id, k, num_masks
    )
    rows = compute_texts(program, model, segments, batch_size)
    filled = []
    for count, (values, ids) in zip(counts, rows, strict=True):
        tokens = map(tokenizer.tokens, ids[:count].tolist())
        pairs = zip(tokens, values.tolist(), strict=False)
        masks = [list(zip(*both, strict=True)) for both in pairs]
        filled.append(masks[0] if count == 1 else masks)
    return filled if is_list else filled[0]


def follow_probabilities(
    model: Model, pairs: Sequence[tuple[str, str]], batch_size: int
) -> list[float]:
    """Return the probability that the second text of each pair follows the first."""
    require_head(model, "next_sentence", "next_sentence")
    if model.pairs != "nsp":
        raise ValueError(
            f"The model was pretrained with pairs={model.pairs}, not on whether a "
            "second segment follows; next_sentence needs one trained with nsp."
        )
    columns = [[pair[i] for pair in pairs] for i in (0, 1)]
    ids = list(zip(*map(model.tokenizer.encode_batch, columns), strict=True))
    program = compiled(model.config, "follows")
    outputs = compute_texts(program, model, ids, batch_size)
    return [float(values[0]) for values in outputs]


def checked_sampling(temperature: float, top_k: int, top_p: float) -> Sampling:
    """Return how tokens are drawn; raise ValueError if a number is out of its range."""
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        is_number = hasattr(value, "__float__") and np.ndim(value) == 0
        require(is_number, f"{name}={value!r:.80} must be a number.")
    if not 0 <= temperature <= _LARGEST:
        raise ValueError(
            f"temperature={temperature} must be at least 0 and at most {_LARGEST:g}."
        )
    is_whole = isinstance(top_k, int | np.integer) and type(top_k) is not bool
    if not (is_whole and 0 <= top_k < 2**31):
        raise ValueError(
            f"top_k={top_k!r:.80} must be a whole number from 0 (all) to {2**31 - 1}."
        )
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} must be above 0 and at most 1.")
    return Sampling(jnp.float32(temperature), jnp.int32(top_k), jnp.float32(top_p))


def generated_text(
    model: Model, prompt: str, num_tokens: int, sampling: Sampling, key: Key[Array, ""]
) -> str:
    """Return the prompt and its continuation."""
    require_head(model, "masked_lm", "generate")
    require_attention(model, "causal", "generate")
    config, tokenizer = model.config, model.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(prompt).ids.tolist()]
    longest = config.max_position_embeddings
    if len(ids) + num_tokens > longest:
        left = longest - len(ids)
        lower = f"Lower num_tokens to {left}, or shorten the prompt"
        remedy = lower if left > 0 else "Shorten the prompt"
        raise ValueError(
            f"The prompt has {len(ids)} tokens, [CLS] included, and num_tokens="
            f"{num_tokens}; the model has {longest} positions. {remedy}."
        )
    buffer = np.full(longest, tokenizer.pad_id, np.int32)
    buffer[: len(ids)] = ids
    special = [i for i in tokenizer.special_ids.values() if i != tokenizer.sep_id]
    allowed = ~np.isin(np.arange(config.vocab_size), special)
    tokens, length = _GENERATE(
        config,
        model.params,
        jnp.asarray(buffer),
        jnp.int32(len(ids)),
        jnp.int32(len(ids) + num_tokens),
        jnp.asarray(allowed),
        jnp.int32(tokenizer.sep_id),
        sampling,
        key,
    )
    warn_untrained_positions(int(length), model.trained_length)
    continued = np.asarray(tokens)[1 : int(length)].tolist()
    if continued[-1:] == [tokenizer.sep_id] and int(length) > len(ids):
        del continued[-1]
    return tokenizer.decode(continued)


@functools.partial(jax.jit, static_argnums=0)
def _log_likelihoods(
    config: BertConfig, params: Params, batch: DeviceBatch
) -> Float[Array, " B"]:
    inputs = inputs_of_tokenized(batch)
    hidden = compute(config, params, "__call__", inputs)
    # The tokens after [CLS], without the last one, [SEP].
    is_counted = inputs.attention_mask[:, 2:]

    def of_row(row: tuple[Array, Array, Array]) -> Float[Array, ""]:
        # One row at a time: its scores are T x V numbers.
        states, ids, counted = row
        scores = compute(config, params, "masked_lm_scores", states[None], None)
        logs = jax.nn.log_softmax(scores[0])
        own = jnp.take_along_axis(logs, ids[1:, None], axis=-1)[:-1, 0]
        return (own * counted).sum()

    return jax.lax.map(of_row, (hidden, inputs.input_ids, is_counted))


def log_likelihoods(model: Model, texts: Sequence[str], batch_size: int) -> list[float]:
    """Return the log probability of each text in nats."""
    require_head(model, "masked_lm", "log_likelihood")
    require_attention(model, "causal", "log_likelihood")
    segments = [(ids,) for ids in model.tokenizer.encode_batch(texts)]
    program = functools.partial(_log_likelihoods, model.config)
    return [float(v) for v in compute_texts(program, model, segments, batch_size)]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _masked_likelihoods(
    config: BertConfig, mask_id: int, params: Params, batch: DeviceBatch
) -> Float[Array, " B"]:
    """Return the log probability of each row's label at its mask."""
    inputs = inputs_of_tokenized(batch)
    place = (inputs.input_ids == mask_id).argmax(axis=1)[:, None]
    hidden = compute(config, params, "__call__", inputs)
    scores = compute(config, params, "masked_lm_scores", hidden, place)[:, 0]
    label = jnp.maximum(batch["label"], 0)[:, None]
    logs = jax.nn.log_softmax(scores)
    return jnp.take_along_axis(logs, label, axis=1)[:, 0]


def pseudo_log_likelihoods(
    model: Model, texts: Sequence[str], batch_size: int
) -> list[float]:
    """Return the pseudo log likelihood of each text in nats (Salazar et al. 2020)."""
    require_head(model, "masked_lm", "pseudo_log_likelihood")
    require_attention(model, "bidirectional", "pseudo_log_likelihood")
    require_count("batch_size", batch_size)
    mask_id = model.tokenizer.mask_id
    program = functools.partial(_masked_likelihoods, model.config, mask_id)
    totals = []
    for number, ids in enumerate(model.tokenizer.encode_batch(texts)):
        masked = [(ids[:i] + [mask_id] + ids[i + 1 :],) for i in range(len(ids))]
        if not masked:
            totals.append(0.0)
            continue
        # All rows of a text are as long: the first is refused by the text's number.
        rows = rows_of(model, masked, numbered(first=number))
        rows = dataclasses.replace(rows, by_example={"label": np.array(ids, np.int32)})
        totals.append(float(sum(compute_rows(program, model, rows, batch_size))))
    return totals
