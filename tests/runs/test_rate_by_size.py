"""The learning rate of a small model's fine-tuning that names none."""

import json

from bert_jax.cli.main import main


def test_a_small_model_has_a_rate_of_its_own(encoder_checkpoint, tmp_path, capsys):
    table, workdir = tmp_path / "table.csv", tmp_path / "run"
    rows = [f"word {n},{'ab'[n % 2]}" for n in range(16)]
    table.write_text("\n".join(["text,label", *rows]))

    def finetune(*options: str) -> str:
        code = main(
            [
                *("finetune", "text-classification", "--workdir", str(workdir)),
                *("--init-from", str(encoder_checkpoint), "--data.train", str(table)),
                *("--num-steps", "2", "--batch-size", "8", "--mesh.data", "1"),
                *("--checkpoint-every", "1"),
                *options,
            ]
        )
        output = capsys.readouterr()
        assert (code == 2) == ("bert-jax: " in output.err)
        return output.out + output.err

    assert "Learning rate 0.001, for a model that is 16 wide" in finetune()
    rate = json.loads((workdir / "config.json").read_text())["optimizer"]
    assert rate["peak_learning_rate"] == 1e-3
    assert "Learning rate" not in finetune()
    option = "--optimizer.peak-learning-rate"
    assert "Learning rate" not in finetune(option, "1e-3")
    assert "peak_learning_rate was 0.001 and is 3e-05" in finetune(f"{option}=3e-5")
    new = tmp_path / "fork"
    fork = ["fork", str(workdir), "--at", "1", "--output", str(new)]
    assert main([*fork, f"{option}=2e-3"]) == 0
    forked = json.loads((new / "config.json").read_text())
    assert forked["optimizer"]["peak_learning_rate"] == 2e-3
    assert not forked["rate_by_size"]
