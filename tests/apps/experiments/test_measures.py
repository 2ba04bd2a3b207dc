"""What is counted of each item that a fine-tuned model is scored on."""

import dataclasses

import jax
import pytest
from etils import epath

from bert_jax.apps.convert.receipts import write_imported
from bert_jax.apps.experiments.inputs import TaskFiles
from bert_jax.apps.experiments.measures import finetuned_items
from bert_jax.config.embedding import Embedding
from bert_jax.formats.imported import Imported
from bert_jax.model.bert import init_params
from bert_jax.pretrained import load_pretrained


@pytest.mark.parametrize(
    ("head", "task", "name", "content"),
    [
        ("sequence", "text", "a.csv", "text,label\nA judge.,{}.0\nThe door.,{}.00\n"),
        ("token", "token", "a.txt", "The {}\njudge {}\n"),
    ],
    ids=["classes of another spelling", "plain labels"],
)
def test_an_item_is_right_by_one_of_two_labels(
    head, task, name, content, encoder_checkpoint, tmp_path
):
    encoder = load_pretrained(str(encoder_checkpoint))
    config = dataclasses.replace(
        encoder.config, head=f"{head}_classification", labels=("0", "1")
    )
    params = init_params(config, jax.random.key(0))
    model = Imported(config, params, encoder.tokenizer, (), (), (), (), Embedding())
    write_imported(model, epath.Path(tmp_path / "model"))
    file = tmp_path / name
    files = TaskFiles("two", f"{task}-classification", str(file), str(file))
    num_right = 0
    for labels in ("01", "10"):
        file.write_text(content.format(*labels))
        items, kind = finetuned_items(files, tmp_path / "model")
        assert kind == "ratio" and items[:, 1].sum() == 2
        num_right += items[:, 0].sum()
    assert num_right == 2
