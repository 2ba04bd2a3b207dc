"""The Python of README.md and of the documentation's first page runs as it stands."""

import re
from pathlib import Path

import pytest
from huggingface_files import stored

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_program_runs(page, tmp_path):
    program, *others = re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL
    )
    assert not others
    pretrained = str(stored("BertForPreTraining").write(tmp_path / "pretrained"))
    classifier = stored("BertForSequenceClassification").write(tmp_path / "classifier")
    names = {"runs/reviews": str(classifier)}
    names |= dict.fromkeys(
        ["hf:google-bert/bert-base-uncased", "runs/mine"], pretrained
    )
    for name, path in names.items():
        assert f'load("{name}")' in program or "# or" in program
        program = program.replace(f'load("{name}")', f'load("{path}")')
    # The stored model takes few tokens.
    program = program.replace('"She opened the door.", "It was dark', '"She", "It')
    assert program.count("\nencoder.apply(") == 1
    values: dict[str, object] = {}
    exec(program.replace("\nencoder.apply(", "\nhidden = encoder.apply("), values)
    assert values["hidden"].shape == (2, 16, values["config"].hidden_size)
