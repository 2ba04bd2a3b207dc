"""How a model makes one vector of a text."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

from bert_jax.config.checks import CheckedConfig, did_you_mean, require

Pooling = Literal["mean", "cls"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
ComputedSimilarity = Literal["cosine", "dot"]
QUERY_PROMPTS = ("query",)
CORPUS_PROMPTS = ("document", "passage", "corpus")
"""Prompts of queries and of texts to find; the first that a model has is used."""


@dataclasses.dataclass(frozen=True, repr=False)
class Embedding(CheckedConfig):
    """The defaults of `Predictor.embed`."""

    pooling: Pooling = "mean"
    """The mean of the real tokens' hidden states, or the hidden state of [CLS]."""
    normalize: bool = False
    """Whether vectors are divided by their L2 norm."""
    unsupported: str = ""
    """What the model's files require and bert_jax does not compute."""
    max_tokens: int | None = None
    """Texts are cut to this length, with [CLS] and [SEP]; None: they are not cut."""
    prompt_names: tuple[str, ...] = ()
    """The names of texts to put before a text, such as query and passage."""
    prompt_texts: tuple[str, ...] = ()
    """The text of each of `prompt_names`."""
    default_prompt: str = ""
    """The name of the prompt to use if none is asked for; empty: none."""
    pool_prompt: bool = True
    """Whether the tokens of a prompt are part of the pooling; if not, `cls` is the
    first token after them, as in sentence-transformers 6."""
    similarity: Similarity = "cosine"
    """How two vectors are compared; only cosine and dot product can be computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names, texts = self.prompt_names, self.prompt_texts
        require(
            len(names) == len(texts),
            f"prompt_names has {len(names)} names and prompt_texts {len(texts)} texts; "
            "give one text per name.",
        )
        require(
            self.default_prompt in ("", *names),
            f"default_prompt={self.default_prompt!r:.80} must be one of prompt_names.",
        )

    @property
    def prompts(self) -> dict[str, str]:
        """The text of each prompt by its name."""
        return dict(zip(self.prompt_names, self.prompt_texts, strict=True))

    def first_prompt(self, names: Iterable[str]) -> str | None:
        """Return the first of `names` that is a prompt's; None: the default prompt."""
        return next((name for name in names if name in self.prompt_names), None)

    def chosen(self, pooling: str | None, normalize: bool | None) -> tuple[str, bool]:
        """Return the arguments; for each None, what the model's files say.

        Raise ValueError if `pooling` is unknown; or if an argument is None, and the
        files need what the library does not compute.
        """
        if self.unsupported and (pooling is None or normalize is None):
            raise ValueError(
                f"The model's files require {self.unsupported}, which embed does not "
                "compute; pass both pooling and normalize for another vector."
            )
        pooling = self.pooling if pooling is None else pooling
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling={pooling!r:.80} must be 'mean' or 'cls'.")
        return pooling, self.normalize if normalize is None else normalize

    def computed_similarity(self) -> ComputedSimilarity:
        """Return cosine or dot; raise ValueError if vectors are compared otherwise."""
        similarity: ComputedSimilarity = "dot" if self.similarity == "dot" else "cosine"
        require(
            self.similarity == similarity,
            f"The model's files require similarity={self.similarity}, and only cosine "
            "and dot can be computed; compare the vectors of `embed` elsewhere.",
        )
        return similarity

    def prompt_text(self, prompt: str | None) -> str:
        """Return the text to put before each text, by a name of one of `prompts`.

        `prompt` may also be that text, which ends in a space or a sign such as a colon;
        "": none; None: the default one. Raise ValueError if it is neither.
        """
        prompts = self.prompts
        is_text = prompt is None or isinstance(prompt, str)
        require(is_text, f"prompt={prompt!r:.80} must be a text, or None.")
        prompt = self.default_prompt if prompt is None else prompt
        if prompt in prompts or not prompt:
            return prompts.get(prompt, "")
        if prompt[-1].isalnum():
            hint = did_you_mean(prompt, self.prompt_names) or "."
            listed = ", ".join(self.prompt_names) or "none"
            raise ValueError(
                f"prompt={prompt!r:.80} is not the name of one of the model's prompts "
                f"({listed}); a text of your own ends in a space or a sign such as a "
                f"colon{hint}"
            )
        return prompt
