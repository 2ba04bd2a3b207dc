"""The special tokens by their roles, which every vocabulary has under some name."""

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The roles, named as BERT names the tokens; in the order of their ids in vocabularies
trained here. Other vocabularies may use other ids and other names, as RoBERTa does."""
NAMES = "special_tokens"
"""Key of the names that a tokenizer.json has for the roles."""
SEPARATORS = "separators"
"""Key of the number of [SEP] between the two texts of a pair: 1, or 2 as RoBERTa."""
SEGMENTS = "segments"
"""Key that says whether the second text of a pair has segment 1: false for RoBERTa."""
