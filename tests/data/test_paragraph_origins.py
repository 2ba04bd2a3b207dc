"""Which library is a paragraph from: what is asked, and what is taken out of it."""

import collections
import json
import random

import pytest

from bert_jax.data.paragraph_origins import (
    COLUMNS,
    GAP,
    RevealingNames,
    library_names,
    paragraph_origins,
    write_origins,
)
from bert_jax.tables.read import read_table

NOUNS = "array value shape matrix number string element row column list".split()
SUBJECTS = {
    "numpy": "ufunc broadcast strides dtype buffer".split(),
    "scikit-learn": "estimator regressor cluster kernel label".split(),
    "python": "thread socket parser codec iterator".split(),
    "small": "nothing much to say here".split(),
}
MODULES = {
    "numpy": [f"numpy.part{i}" for i in range(40)] + ["numpy.value"],
    "scikit-learn": [f"sklearn.kit_{i}" for i in range(40)] + ["sklearn.kernel"],
    "python": [f"stdlib{i}" for i in range(40)] + ["codec"],
    "small": ["small"],
}
MENTIONS = ("NumPy", "np.ufunc.at", "scikit-learn's", "CPython", "a_np_b")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Four libraries; the last is too small to be asked for."""
    directory = tmp_path_factory.mktemp("origins") / "corpus"
    directory.mkdir()
    draw = random.Random(0)
    for library, modules in MODULES.items():
        documents = []
        for _ in modules:
            words = NOUNS + SUBJECTS[library]
            words += ["part7"] if library == "numpy" else []
            documents.append(
                "\n".join(
                    f"The {' '.join(draw.choices(words, k=14))} of {mention}."
                    for mention in draw.sample(MENTIONS, 3)
                )
            )
        (directory / f"{library}.txt").write_text("\n\n".join(documents) + "\n")
    (directory / "corpus.json").write_text(json.dumps({"modules": MODULES}))
    return directory


@pytest.fixture(scope="module")
def origins(corpus):
    return paragraph_origins(corpus, num_libraries=3, num_training=60)


def test_the_largest_libraries_in_equal_numbers(origins):
    libraries = {each.library for each in origins["train"]}
    assert libraries == {"numpy", "scikit-learn", "python"}
    for part, most in ((origins["train"], 60), (origins["validation"], 100)):
        numbers = collections.Counter(each.library for each in part)
        assert len(numbers) == 3 and len(set(numbers.values())) == 1
        assert 10 <= numbers["numpy"] <= most
    assert len(origins["train"]) == 180


def test_no_module_and_no_text_is_on_both_sides(origins):
    train, validation = (
        {(each.library, each.module) for each in part}
        for part in (origins["train"], origins["validation"])
    )
    assert not train & validation
    texts = [each.text for each in origins["train"] + origins["validation"]]
    assert len(set(texts)) == len(texts)
    # A module is not asked for again before all others were.
    assert len(train) > 75


def test_no_name_is_left(origins):
    texts = " ".join(
        each.text for each in origins["train"] + origins["validation"]
    ).lower()
    assert GAP in texts
    for name in ("numpy", "np", "scikit", "sklearn", "cpython", "part7", "codec"):
        assert name not in texts.replace("_", " ").replace(".", " ").split()
        assert len(name) < 5 or name not in texts
    # "kernel" and "codec" are modules, and words that one library alone uses; "value"
    # is a module's name too, but a word of all of them.
    assert "kernel" not in texts and "value" in texts


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Like NumPy's arrays, np.float64 too.", "Like …'s arrays, … too."),
        ("A KerasTensor in tf_keras.", "A … in …."),
        ("See scikit-learn, Scikit Learn or SKLEARN.", "See …, … or …."),
        ("Log in at the Hugging Face Hub.", "Log in at the … Hub."),
        (
            "The input of utf-8 inputs: snp, tfx.",
            "The input of utf-8 inputs: snp, tfx.",
        ),
        ("With linear_model and its linear model.", "With … and its linear model."),
    ],
)
def test_names_are_whole_identifiers(text, wanted):
    libraries = library_names("keras", ["keras.layers"])
    for library, module in (
        ("numpy", "numpy.linalg"),
        ("scikit-learn", "sklearn.linear_model"),
        ("huggingface-hub", "huggingface_hub"),
        ("tensorflow-cpu", "tensorflow"),
    ):
        libraries |= library_names(library, [module])
    names = RevealingNames(frozenset(libraries), frozenset({"linear_model"}))
    assert names.remove_from(text) == wanted


def test_pythons_modules_are_not_its_names():
    assert library_names("python", ["this", "antigravity"]) == {"python", "cpython"}


def test_it_is_always_the_same(corpus, origins, tmp_path):
    assert paragraph_origins(corpus, num_libraries=3, num_training=60) == origins
    write_origins(origins, tmp_path / "origins")
    rows = read_table(str(tmp_path / "origins" / "train.csv"))
    assert [tuple(row.values[name] for name in COLUMNS) for row in rows] == [
        (each.text, each.library) for each in origins["train"]
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["origins"]


def test_too_small_a_library_is_named(corpus):
    with pytest.raises(ValueError, match="small: no paragraph has 12 words"):
        paragraph_origins(corpus, num_libraries=4)
