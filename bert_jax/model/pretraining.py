"""BERT with the two heads that it is pretrained with (Devlin et al. 2018, §3.1)."""

from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import MaskedLM, NextSentence, Pooler, gather_positions


class BertForPretraining(nn.Module):
    """Encoder, pooler, masked-LM head and next-sentence head."""

    config: BertConfig

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.pooler = Pooler(self.config)
        self.masked_lm = MaskedLM(self.config)
        self.next_sentence = NextSentence(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        attention_mask: Bool[Array, "B T"],
        predicted: Int[Array, "B P"],
        first: Int[Array, "B K"],
        deterministic: bool = True,
        pairs: Int[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B P V"], Float[Array, "B K 2"]]:
        """Vocabulary scores at the positions `predicted`, and next-sentence scores.

        Args:
            predicted: positions whose tokens are to be predicted; the head runs on
                these alone.
            first: where each pair's [CLS] stands.
            pairs: the number of each token's pair, where a row holds several.
        """
        hidden = self.encoder(
            input_ids, segment_ids, attention_mask, deterministic, pairs
        )
        token_scores = self.masked_lm(
            gather_positions(hidden, predicted), self.encoder.token_table()
        )
        pooled = self.pooler(gather_positions(hidden, first))
        return token_scores, self.next_sentence(pooled)
