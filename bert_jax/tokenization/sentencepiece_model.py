"""Unigram, BPE and character vocabularies, by the library `sentencepiece`."""

from collections.abc import Iterable, Sequence

from bert_jax.tokenization.special_tokens import SPECIAL_TOKENS

_WORD_START = "\u2581"
"""The mark of the first piece of a word."""


class SentencePiece:
    word_limit: int | None = None

    def __init__(self, model: bytes) -> None:
        import sentencepiece  # optional: not needed for WordPiece

        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            message = "is not a sentencepiece model; train one by `bert-jax vocab`."
            raise ValueError(message) from error
        self.num_pieces = len(self._processor)
        self.tokens = self._processor.id_to_piece(list(range(self.num_pieces)))
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        self.continuing = [
            not token.startswith(_WORD_START) and token not in SPECIAL_TOKENS
            for token in self.tokens
        ]

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self._processor.encode(text, return_type="offset_mapping")
        return encoding["ids"], encoding["offsets"]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode(list(texts), num_threads=1)
        return ids

    def inside_word(self, token_id: int) -> int | None:
        """Return the piece without the mark of a word start; None if it is the mark."""
        token = self.tokens[token_id]
        rest = token.removeprefix(_WORD_START)
        return self._ids.get(rest, token_id) if rest else None

    def num_bytes(self, token: str) -> int:
        if self._processor.is_byte(self._ids[token]):
            return 1
        return len(token.replace(_WORD_START, " ").encode())

    def decode(self, tokens: Iterable[str]) -> str:
        spaced = (f" {t} " if t in SPECIAL_TOKENS else t for t in tokens)
        return " ".join("".join(spaced).replace(_WORD_START, " ").split())
