"""What a model learned from is found, also under another name."""

import dataclasses

import pytest

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.inference.evaluation import examples_of
from bert_jax.inference.learned import learned_line, training_examples
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.splits import fingerprint, hold_out

TAGS = "".join(f"The O\njudge{i} B-PER\nreads O\n\n" for i in range(20))
TEXTS = "text,label\n" + "".join(f"The judge {i}.,{'ab'[i % 2]}\n" for i in range(20))
MODELS = {
    "token-classification": ("ner.txt", TAGS, ("O", "B-PER")),
    "text-classification": ("texts.csv", TEXTS, ("a", "b")),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_that_was_learned_from_is_known(name, tmp_path):
    file, content, labels = MODELS[name]
    path, other = tmp_path / file, tmp_path / f"moved_{file}"
    path.write_text(content)
    kind = BertConfig(labels=labels)
    task = finetuning_task(name, ExamplesConfig(train=str(path)), kind)
    everything = task.read(str(path))
    train = hold_out(task, everything).train
    data = dataclasses.replace(task.data, fingerprint=fingerprint(train))
    of_run = dataclasses.replace(task, data=data)
    assert list(training_examples(of_run, [])) == list(train)
    line = f"The model learned from {len(train)} of 20 examples;"
    assert learned_line(task, train, everything).startswith(line)
    held_out = hold_out(task, everything).validation
    assert len(train) < 20 and learned_line(task, train, held_out) == ""
    path.rename(other)
    again = training_examples(of_run, task.read(str(other)))
    assert list(map(task.texts, again)) == list(map(task.texts, train))
    other.write_text(content.replace("judge", "clerk"))
    assert list(training_examples(of_run, task.read(str(other)))) == []


@pytest.mark.parametrize("name", MODELS)
def test_only_the_rows_that_a_run_held_out_are_scored(name, tmp_path):
    file, content, labels = MODELS[name]
    path, other = tmp_path / file, tmp_path / f"moved_{file}"
    path.write_text(content)
    other.write_text(content)
    kind = BertConfig(labels=labels)
    task = finetuning_task(name, ExamplesConfig(train=str(path)), kind)
    splits = hold_out(task, task.read(str(path)))
    held_out = task.match_labels(splits.validation)
    prints = fingerprint(splits.train), fingerprint(held_out)
    names = dict(zip(("fingerprint", "validation_fingerprint"), prints, strict=True))
    for place in (path, other):
        data = dataclasses.replace(task.data, train=str(place), **names)
        of_run = dataclasses.replace(task, data=data)
        scored = examples_of(of_run, "validation")
        assert list(map(task.texts, scored)) == list(map(task.texts, held_out))
        place.write_text(content + content.removeprefix("text,label\n") * 2)
        with pytest.raises(ValueError, match=f"{place} has changed since, .* --input."):
            examples_of(of_run, "validation")
