import pytest

from bert_jax.data.prose import duplicate_key, is_prose, paragraphs

NUMPYDOC = """Return the mean of the values
    along the given axis of an array.

    The mean is the sum of the values, divided by their number [1]_.

    .. versionadded:: 1.2
       The axis may also be a tuple of several axes.

    .. math:: \\sum_i x_i / n

    .. code-block:: python

       # This comment is a part of the code that must go.

    Parameters
    ----------
    x : array_like, optional
        The values, as an *array* or as something that
        :func:`~numpy.asarray` can turn into one.
    axis : int

    Notes
    -----
    It can be called in the following way, as in ``mean(x)``::

        This line of a literal block is not for the reader.

    The text goes on here after the end of the block.

    ========  =======================================
    name      This is a table and not a line of prose.
    ========  =======================================

    >>> print("This is what a session looks like in the docs.")
    This is what a session looks like in the docs.

    References
    ----------
    .. [1] A. Author, "On the mean of the values that are in it", 1901.
    """

GOOGLE = """Fits the model to the rows that are in the file.

    ```python
    This line is inside of a fence and is not for us.
    ```

    Args:
      path: Where the file is that has all of the rows, and
        which of its columns: the first of them by default.
      rate (float): How large a step is to be, at the most.

    See [the guide](https://example.org/guide) if you want to know more about it.
    1. The first item of a list is a sentence of its own.
    2. The second item of the list runs
       over two lines of the text.

    :param seed: The number from which the order of the rows follows.
    """


def test_numpydoc() -> None:
    assert paragraphs(NUMPYDOC) == [
        "Return the mean of the values along the given axis of an array.",
        "The mean is the sum of the values, divided by their number.",
        "The axis may also be a tuple of several axes.",
        "The values, as an array or as something that numpy.asarray can turn into one.",
        "It can be called in the following way, as in mean(x):",
        "The text goes on here after the end of the block.",
    ]


def test_google_style() -> None:
    assert paragraphs(GOOGLE) == [
        "Fits the model to the rows that are in the file.",
        "Where the file is that has all of the rows, and which of its columns: the"
        " first of them by default.",
        "How large a step is to be, at the most.",
        "See the guide if you want to know more about it.",
        "The first item of a list is a sentence of its own.",
        "The second item of the list runs over two lines of the text.",
        "The number from which the order of the rows follows.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Too short to be of any use.",
        "This sentence does not come to an end because it",
        "and this is the end of one that began elsewhere.",
        "A list of float32, float64, int8, int16, int32, int64.",
        "Numerical Recipes Cambridge University Press Third Edition New York.",
        "The value of x is the same as if x == y and so on.",
    ],
)
def test_not_prose(text: str) -> None:
    assert not is_prose(text)


def test_fold_ignores_numbers_case_and_marks() -> None:
    assert duplicate_key("New in version 3.11: it is `fast`.") == duplicate_key(
        "new in version 2.7 It is fast"
    )
    assert duplicate_key("It is fast.") != duplicate_key("It is slow.")
