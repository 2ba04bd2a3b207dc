"""What `inspect` prints and the pages that verbs write, from Python."""

import pytest

import bert_jax
from bert_jax.cli.main import main


@pytest.mark.parametrize(
    "options",
    [
        {"verify": True},
        {"when": ("the", "in the")},
        {"summary": True, "sequence_length": 16},
    ],
)
def test_inspect_returns_what_the_verb_prints(options, pretrained, capsys):
    words = ["inspect", str(pretrained)]
    for name, value in options.items():
        values = (value,) if isinstance(value, str) else value
        values = values if isinstance(values, tuple) else (values,)
        for one in values:
            option = f"--{name.replace('_', '-')}"
            words += [option] if one is True else [option, str(one)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    value = bert_jax.inspect(pretrained, **options)
    assert capsys.readouterr().out == ""
    assert f"{value!r}\n" == f"{value}\n" == printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verify": True, "summary": True}, "^verify has no effect with summary; "),
        ({"when": "a", "verify": True}, r"^when=\('a',\) has no effect with verify; "),
        ({"run": "runs/a"}, "^run='runs/a' has no effect without when"),
        ({"sequence_length": 8}, "^sequence_length=8 has no effect without summary"),
    ],
)
def test_an_argument_without_effect_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        bert_jax.inspect(tmp_path, **options)


def test_pages_are_written_by_functions(pretrained, tmp_path):
    page = bert_jax.run_page(pretrained, tmp_path / "run.html")
    assert page == tmp_path / "run.html" and str(pretrained) in page.read_text()
    bert = bert_jax.load(pretrained)
    for model, name in ((bert, "the model"), (pretrained, str(pretrained))):
        page = bert_jax.attention_page(model, "the judge", tmp_path / "a.html")
        assert page == tmp_path / "a.html"
        assert name in page.read_text() and '"judge"' in page.read_text()
    with pytest.raises(ValueError, match=r"a.pdf must end in \.html"):
        bert_jax.attention_page("no model", "the river", "a.pdf")
