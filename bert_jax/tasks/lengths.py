"""Row lengths: the model's own, or defaults that fit its positions."""

from bert_jax.config import BertConfig, ExamplesConfig

DEFAULT_LENGTHS = (128, 384)
"""`max_length` for a model without its own: of texts, and of documents."""
TAKES_NO_MORE = "the model takes no more: shorten or divide them"


def default_length(task: str) -> int:
    """Return the `max_length` of a task for a model without its own."""
    return DEFAULT_LENGTHS[task == "question-answering"]


def row_length(data: ExamplesConfig, model: BertConfig) -> int:
    """Return the most tokens of a row; without `max_length`, the model's positions."""
    positions = model.max_position_embeddings
    return min(data.max_length or positions, positions)


def fit_lengths(
    data: ExamplesConfig, positions: int, length: int = 0
) -> ExamplesConfig:
    """Return `data` with lengths that fit a model with `positions` positions.

    Only lengths with their default values change. `max_length` becomes `length`, or
    `positions` if that is 0 or more. `max_query_length` becomes half of the row if it
    would leave less than a quarter of the row to the document. `document_stride`
    becomes half of the room for the document if it is larger than that room.
    """
    default = ExamplesConfig()
    query, stride = data.max_query_length, data.document_stride
    is_default = not data.max_length or data.max_length in DEFAULT_LENGTHS
    length = data.max_length or length or positions
    if is_default:
        length = min(length, positions)
    is_stride_set = stride != default.document_stride
    min_room = stride if is_stride_set else length // 4
    # A row has 3 special tokens: [CLS] question [SEP] document [SEP].
    if query == default.max_query_length and length - query - 3 < min_room:
        query = min(query, length // 2)
    room = length - query - 3
    if not is_stride_set and 0 < room < stride:
        stride = max(1, room // 2)
    return data.changed(
        max_length=length, max_query_length=query, document_stride=stride
    )


def chosen_length_line(
    before: ExamplesConfig, after: ExamplesConfig, own: int, positions: int
) -> str:
    """Return which lengths `fit_lengths` has chosen, and why; "" for those given.

    Args:
        own: the length of the model's files or of its last run; 0: there is none.
    """
    chosen, own = ", ".join(changed_lengths(before, after)), min(own, positions)
    if not before.max_length and own:
        return f"{chosen}: the model's own length."
    if chosen and after.max_length == positions:
        return (
            f"The model has {positions} positions: {chosen} in place of the defaults."
        )
    if own and after.max_length != own:
        return (
            f"max_length={after.max_length} in place of the model's own {own}; an "
            "export has it, too."
        )
    line = f"{chosen}: the default, since the model has no length of its own."
    return line if chosen else ""


def cut_lines(
    num_cut: int, num_examples: int, limit: int, remedy: str, noun: str = "texts"
) -> list[str]:
    """Return a line with the number of texts that are cut, if there are any."""
    line = (
        f"cut to {limit} tokens: {num_cut:,} of {num_examples:,} {noun} "
        f"({num_cut / max(num_examples, 1):.1%}); {remedy}"
    )
    return [line] * (num_cut > 0)


def changed_lengths(before: ExamplesConfig, after: ExamplesConfig) -> list[str]:
    """Return the lengths of `after` that differ from `before`, as "max_length=32"."""
    names = ("max_length", "max_query_length", "document_stride")
    return [
        f"{name}={getattr(after, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]
