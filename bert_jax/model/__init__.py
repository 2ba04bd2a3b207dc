"""The BERT encoder and its heads, as Flax linen modules.

Shapes everywhere: B batch, T tokens, S the tokens attended to, P predictions, D hidden,
N heads, H head width, F feed-forward, V vocabulary, C classes.
"""
