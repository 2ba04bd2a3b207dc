"""The tensors of a file of transformers' by the names that its classes have today."""

from etils import epath

from bert_jax.formats.tensor_files import Tensor

TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Tensors that may be written out, and what each must equal."""
WRAPPERS = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before the names of the model inside."""


def find_prefix(path: epath.Path, found: list[Tensor]) -> str:
    """What every tensor's name begins with that belongs to no model, or nothing.

    Raises:
        ValueError: some names begin with it, and others do not.
    """
    whole = ""
    while found:
        rest = [tensor.name.removeprefix(whole) for tensor in found]
        for prefix in WRAPPERS:
            with_it = [name for name in rest if name.startswith(prefix)]
            if len(with_it) == len(rest):
                whole += prefix
                break
            if with_it:
                other = next(name for name in rest if not name.startswith(prefix))
                raise ValueError(
                    f"{path} holds {with_it[0]} and {other}: {prefix!r} comes of "
                    "DataParallel or torch.compile around a model, and only some of "
                    "the names have it; save the state of the model inside."
                )
        else:
            break
    return whole


def canonical(name: str, prefix: bool) -> str:
    """A tensor's name in today's files of the classes with a head.

    Args:
        prefix: whether the file's names lack `bert.`, as those of BertModel do.
    """
    if prefix and name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    if name.endswith(".LayerNorm.gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith(".LayerNorm.beta"):
        return name.removesuffix("beta") + "bias"
    return name


def by_canonical_name(
    path: epath.Path, found: list[Tensor], wrapper: str
) -> dict[str, Tensor]:
    names = {tensor.name: tensor.name.removeprefix(wrapper) for tensor in found}
    prefix = not any(name.startswith("bert.") for name in names.values())
    tensors: dict[str, Tensor] = {}
    for tensor in found:
        name = canonical(names[tensor.name], prefix)
        if name in tensors:
            raise ValueError(
                f"{path}: {tensors[name].name} and {tensor.name} are two tensors for "
                "one parameter; keep one."
            )
        tensors[name] = tensor
    return tensors


def take_tied(path: epath.Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Takes copies of what the output layer shares out of `tensors`, by the original.

    Raises:
        ValueError: the output layer is another than the table of embeddings.
    """
    copies = {}
    for copy, original in TIED.items():
        if copy not in tensors:
            continue
        one = tensors.pop(copy)
        other = tensors.setdefault(original, one)
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        if not same or one.read_bytes() != other.read_bytes():
            raise ValueError(
                f"{path}: {one.name} differs from {other.name}; bert_jax has one "
                "array for both, so such a model cannot be taken."
            )
        if one is not other:
            copies[original] = one
    return copies
