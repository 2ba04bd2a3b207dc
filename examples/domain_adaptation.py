"""Continue the pretraining of a model on text of a domain, then fine-tune it on a task.

Raw text of the task's domain, without labels, often makes the fine-tuned model better
(Gururangan et al. 2020). Prints the scores with and without; try several seeds.
python examples/domain_adaptation.py --model MODEL --text '*.txt' --train A.csv
    --validation B.csv --directory runs/adapted
MODEL: a workdir or hf:google-bert/bert-base-uncased. Columns of the files: text, label.
The same command again resumes what was stopped.
"""

from pathlib import Path

import tyro

import bert_jax


def main(
    model: str,
    text: str,
    train: str,
    validation: str,
    directory: str,
    num_steps: int = 10_000,
    sequence_length: int = 128,
    batch_size: int = 32,
    num_epochs: float = 3.0,
    seed: int = 0,
):
    root = Path(directory)
    bert_jax.load(model).tokenizer.save(
        root / "tokenizer"
    )  # the rows need the same ids
    names = {"tokenizer": str(root / "tokenizer"), "output": str(root / "data")}
    bert_jax.prepare(
        bert_jax.PrepareConfig(input=(text,), sequence_length=sequence_length, **names)
    )
    config = bert_jax.PretrainConfig(  # the shape is that of init_from
        init_from=model,
        data=bert_jax.DataConfig(path=names["output"]),
        optimizer=bert_jax.OptimizerConfig(warmup_steps=num_steps // 16),
        num_steps=num_steps,
        batch_size=batch_size,
        seed=seed,
        eval_every=max(1, num_steps // 10),
        checkpoint_every=max(1, num_steps // 10),
    )
    scores = {"pretraining": bert_jax.pretrain(config, root / "adapted")}
    files = bert_jax.ExamplesConfig(train, validation, max_length=sequence_length)
    for name, start in (("original", model), ("adapted", str(root / "adapted"))):
        options = {"init_from": start, "num_epochs": num_epochs, "seed": seed}
        config = bert_jax.FinetuneConfig(data=files, **options)
        scores[name] = bert_jax.finetune(config, root / f"finetuned_{name}")
    return scores


if __name__ == "__main__":
    for name, scores in tyro.cli(main, description=__doc__).items():
        print(name, scores)
