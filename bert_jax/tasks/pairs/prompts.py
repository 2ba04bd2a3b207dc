"""How a text becomes a vector: what is pooled, and the prompt before the text."""

from typing import Literal

from bert_jax.config.embedding import Embedding, Pooling
from bert_jax.tokenization import Tokenizer


def chosen_embedding(
    embedding: Embedding | None, pooling: Pooling | Literal[""]
) -> Embedding:
    """Return how the texts of pairs become vectors.

    Args:
        embedding: what the model's files say; None: nothing.
        pooling: what the user chose; empty: as the files say, or mean.

    Raises:
        ValueError: the files require what the library does not compute, and the user
            chose nothing else.
    """
    own = embedding or Embedding()
    if own.unsupported and not pooling:
        raise ValueError(
            f"The model's files require {own.unsupported}, which is not computed; "
            "choose another vector by --data.sentence-pairs.pooling, or another model."
        )
    if pooling:
        return own.changed(pooling=pooling, unsupported="")
    return own


def checked_prompt(
    embedding: Embedding, tokenizer: Tokenizer, prompt: str | None, limit: int | None
) -> tuple[str, int]:
    """Return a model's prompt, and how many tokens of each row are not pooled.

    They are [CLS] and the prompt's; 0: all are pooled.

    Args:
        prompt: a text, or the name of one of the model's prompts.
        limit: tokens to which rows are cut; None: they are not cut.

    Raises:
        ValueError: there is no such prompt, or no token of a text would be left.
    """
    text = embedding.prompt_text(prompt)
    if not text:
        return "", 0
    num_tokens = len(tokenizer.encode(text).ids)
    if limit is not None and num_tokens >= limit - 2:
        raise ValueError(
            f"The prompt {text!r:.80} has {num_tokens} tokens, and texts are cut to "
            f"{limit}, [CLS] and [SEP] included; shorten it."
        )
    # [CLS] stands before the prompt.
    return (text, 0 if embedding.pool_prompt else 1 + num_tokens)
