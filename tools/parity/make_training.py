"""Makes training.npz: fifty steps of PyTorch on fixed masked batches.

Prints beside the losses how far they move when one rule of the training changes:
a test with a tolerance of 1e-4 tells each of these from the right one.
"""

import dataclasses

import numpy as np
import torch
import transformers
from reference import HERE, SHAPE, Scales, build_model, export_weights, save

VOCAB_SIZE, B, T, P = 128, 8, 32, 5
NUM_STEPS = 50
CLS, SEP, MASK, FIRST_WORD = 2, 3, 4, 5
SCALES = Scales(
    embedding=0.2, kernel=0.2, bias=0.3, layer_norm=0.15, layer_norm_mean=0.3
)
HYPERPARAMETERS = {
    "peak_learning_rate": 5e-3,
    "warmup_steps": 10,
    "schedule_steps": 60,
    "num_steps": NUM_STEPS,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-6,
    "clip_norm": 1.0,
}

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the parity test proves; the defaults are right."""

    decayed: str = "matrices"
    clip: bool = True
    clip_each_tensor: bool = False
    schedule_shift: int = 0
    flip_next_sentence: bool = False
    mean_by_row: bool = False
    epsilon: float = HYPERPARAMETERS["epsilon"]
    beta2: float = HYPERPARAMETERS["beta2"]
    dtype: torch.dtype = torch.float32


WRONG = {
    "biases decayed": Rules(decayed="matrices and biases"),
    "LayerNorm decayed": Rules(decayed="matrices and LayerNorm"),
    "embeddings not decayed": Rules(decayed="kernels"),
    "no clipping": Rules(clip=False),
    "each tensor clipped alone": Rules(clip_each_tensor=True),
    "schedule one step early": Rules(schedule_shift=1),
    "next sentence labels flipped": Rules(flip_next_sentence=True),
    "mean of row means": Rules(mean_by_row=True),
    "epsilon 1e-8": Rules(epsilon=1e-8),
    "beta2 0.98": Rules(beta2=0.98),
}


def main() -> None:
    torch.set_num_threads(1)
    config = SHAPE | {"vocab_size": VOCAB_SIZE, "hidden_act": "gelu"}
    batches = make_batches(np.random.default_rng(3))
    model = build_model(config, SCALES, seed=2)
    initial = export_weights(model)
    curves = train(model, batches, Rules())
    final = export_weights(model)
    show(curves)
    for name, rules in ({"float64": Rules(dtype=torch.float64)} | WRONG).items():
        other = build_model(config, SCALES, seed=2)
        compare(name, curves, train(other, batches, rules), final, other)
    save(
        HERE / "training.npz",
        {"config": config, "hyperparameters": HYPERPARAMETERS},
        {"initial": initial, "final": final, "batches": batches} | curves,
    )


def make_batches(rng: np.random.Generator) -> Batch:
    """Masked pairs, stacked over the steps, with something to learn in them.

    Common words come from the start of one of two topics; a pair follows when both
    segments have one topic.
    """
    rows = [make_row(rng) for _ in range(NUM_STEPS * B)]
    return {
        name: np.stack([row[name] for row in rows])
        .reshape(NUM_STEPS, B, *np.shape(rows[0][name]))
        .astype(np.float32 if name == "masked_lm_weights" else np.int32)
        for name in rows[0]
    }


def make_row(rng: np.random.Generator) -> Batch:
    length = int(rng.integers(10, T + 1))
    second = int(rng.integers(4, length - 3))
    label, topic = rng.integers(0, 2, 2)
    ids = np.zeros(T, int)
    ids[:length] = FIRST_WORD + 2 * (rng.geometric(0.08, length) - 1) % 122 + topic
    ids[second:length] += label * (1 - 2 * topic)
    ids[0], ids[second - 1], ids[length - 1] = CLS, SEP, SEP
    words = np.setdiff1d(np.arange(1, length - 1), [second - 1])
    count = min(P, max(1, round(0.15 * length)))
    chosen = np.sort(rng.choice(words, count, replace=False))
    empty = P - count
    row = {
        "segment_ids": (np.arange(T) >= second) & (np.arange(T) < length),
        "attention_mask": np.arange(T) < length,
        "masked_lm_positions": np.pad(chosen, (0, empty)),
        "masked_lm_labels": np.pad(ids[chosen], (0, empty)),
        "masked_lm_weights": np.pad(np.ones(count), (0, empty)),
        "next_sentence_labels": label,
    }
    kinds = rng.random(count)
    randoms = rng.integers(FIRST_WORD, VOCAB_SIZE, count)
    masked = np.where(kinds < 0.8, MASK, np.where(kinds < 0.9, randoms, ids[chosen]))
    ids[chosen] = masked
    return {"input_ids": ids} | row


def train(
    model: transformers.BertForPreTraining, batches: Batch, rules: Rules
) -> dict[str, np.ndarray]:
    """Trains the model in place: the losses and rates that each step used."""
    model.train().to(rules.dtype)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, rules),
        lr=HYPERPARAMETERS["peak_learning_rate"],
        betas=(HYPERPARAMETERS["beta1"], rules.beta2),
        eps=rules.epsilon,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, HYPERPARAMETERS["warmup_steps"], HYPERPARAMETERS["schedule_steps"]
    )
    for _ in range(rules.schedule_shift):
        optimizer.step()  # Without gradients: nothing moves, PyTorch does not warn.
        schedule.step()
    history = []
    for step in range(NUM_STEPS):
        batch = {name: torch.from_numpy(x[step]) for name, x in batches.items()}
        masked_lm_loss, next_sentence_loss = losses(model, batch, rules)
        loss = masked_lm_loss + next_sentence_loss
        optimizer.zero_grad()
        loss.backward()
        grad_norm = clip(model, rules)
        learning_rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        parts = (loss, masked_lm_loss, next_sentence_loss, grad_norm)
        history.append([part.item() for part in parts] + [learning_rate])
    names = "loss", "masked_lm_loss", "next_sentence_loss", "grad_norm", "learning_rate"
    return dict(zip(names, np.array(history).T.copy(), strict=True))


def parameter_groups(
    model: transformers.BertForPreTraining, rules: Rules
) -> list[dict[str, object]]:
    decayed, spared = [], []
    for name, parameter in model.named_parameters():
        if "LayerNorm" in name:
            decay = "LayerNorm" in rules.decayed
        elif name.endswith("bias"):
            decay = "biases" in rules.decayed
        else:
            decay = rules.decayed != "kernels" or "embeddings" not in name
        (decayed if decay else spared).append(parameter)
    return [
        {"params": decayed, "weight_decay": HYPERPARAMETERS["weight_decay"]},
        {"params": spared, "weight_decay": 0.0},
    ]


def losses(
    model: transformers.BertForPreTraining, batch: dict[str, torch.Tensor], rules: Rules
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropies: over the batch's real predictions, and over its pairs."""
    outputs = model(
        batch["input_ids"].long(),
        token_type_ids=batch["segment_ids"].long(),
        attention_mask=batch["attention_mask"].long(),
    )
    rows = torch.arange(B)[:, None]
    logits = outputs.prediction_logits[rows, batch["masked_lm_positions"].long()]
    entropy = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), batch["masked_lm_labels"].long(), reduction="none"
    )
    weights = batch["masked_lm_weights"].to(entropy.dtype)
    if rules.mean_by_row:
        masked_lm_loss = ((entropy * weights).sum(1) / weights.sum(1)).mean()
    else:
        masked_lm_loss = (entropy * weights).sum() / weights.sum()
    labels = batch["next_sentence_labels"].long()
    next_sentence_loss = torch.nn.functional.cross_entropy(
        outputs.seq_relationship_logits,
        1 - labels if rules.flip_next_sentence else labels,
    )
    return masked_lm_loss, next_sentence_loss


def clip(model: transformers.BertForPreTraining, rules: Rules) -> torch.Tensor:
    """Clips the gradients in place; the global norm that they had."""
    limit = HYPERPARAMETERS["clip_norm"]
    globally = rules.clip and not rules.clip_each_tensor
    norm = torch.nn.utils.clip_grad_norm_(
        model.parameters(), limit if globally else float("inf")
    )
    if rules.clip_each_tensor:
        for parameter in model.parameters():
            torch.nn.utils.clip_grad_norm_(parameter, limit)
    return norm


def show(curves: dict[str, np.ndarray]) -> None:
    for name, curve in curves.items():
        print(f"{name:20}", np.array2string(curve[::7], precision=4))
    clipped = int((curves["grad_norm"] > HYPERPARAMETERS["clip_norm"]).sum())
    print(f"clipped: {clipped} of {NUM_STEPS} steps")


def compare(
    name: str,
    curves: dict[str, np.ndarray],
    other_curves: dict[str, np.ndarray],
    final: dict[str, np.ndarray],
    other: transformers.BertForPreTraining,
) -> None:
    """How far losses and parameters (relative, by norm) are from the right ones."""
    loss = np.abs(other_curves["loss"] - curves["loss"])
    weights = export_weights(other)
    errors = {
        path: np.linalg.norm(weights[path] - array) / np.linalg.norm(array)
        for path, array in final.items()
    }
    worst = sorted(errors, key=errors.__getitem__)[::-1]
    past = int((loss > 1e-4).sum())
    print(
        f"{name:30} loss: max |Δ| {loss.max():.1e}, past 1e-4 in {past} steps;", end=""
    )
    print(" weights:", ", ".join(f"{p} {errors[p]:.1e}" for p in worst[:2]))


if __name__ == "__main__":
    main()
