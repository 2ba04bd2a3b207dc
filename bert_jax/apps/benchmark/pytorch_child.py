"""The process that `pytorch.py` starts: reads a job, then runs steps for each line.

Models are those of transformers, with random parameters and its attention `sdpa`. JAX
is not imported here.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Float, Int
from torch.nn.functional import cross_entropy

from bert_jax.apps.benchmark.figures import Figures, peak_memory_mib, seconds_per_step
from bert_jax.terminal.processes import num_cores

Tensors = dict[str, Int[torch.Tensor, "B ..."]]
"""A batch under the argument names of transformers."""


class AsShipped(torch.nn.Module):
    """The loss of `BertForPreTraining`, which scores all positions."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensors) -> Float[torch.Tensor, ""]:
        rows = {k: v for k, v in rows.items() if not k.startswith("predicted")}
        return self.model(**rows).loss


class MaskedHead(AsShipped):
    """The same loss, computed from the scores of the masked positions only."""

    def forward(self, rows: Tensors) -> Float[torch.Tensor, ""]:
        names = ("input_ids", "token_type_ids", "attention_mask")
        output = self.model.bert(**{name: rows[name] for name in names})
        hidden = output.last_hidden_state
        # Gather the hidden states of the predicted positions: [B, P, D].
        positions = rows["predicted"][:, :, None].expand(-1, -1, hidden.shape[-1])
        masked = hidden.gather(1, positions)
        scores, pair_scores = self.model.cls(masked, output.pooler_output)
        labels = rows["predicted_labels"].flatten()
        pair_loss = cross_entropy(pair_scores, rows["next_sentence_label"])
        return cross_entropy(scores.flatten(0, 1), labels) + pair_loss


def their_config(model: dict[str, Any]) -> Any:
    """Return our configuration as transformers' own; the field names are the same."""
    known = transformers.BertConfig().to_dict()
    same = {k: v for k, v in model.items() if k in known and k != "dtype"}
    return transformers.BertConfig(**same, attn_implementation="sdpa")


def adamw(model: Any, optimizer: dict[str, Any]) -> torch.optim.Optimizer:
    """Return the fused AdamW, without decay of biases and LayerNorm."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": optimizer["weight_decay"]},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=optimizer["peak_learning_rate"],
        betas=(optimizer["beta1"], optimizer["beta2"]),
        eps=optimizer["epsilon"],
        fused=True,
    )


def training(job: dict[str, Any], rows: Tensors) -> tuple[Any, Callable[[], None]]:
    """Return the model, and a step: loss, gradient, clipping, update.

    bfloat16 uses autocast, with float32 parameters.
    """
    device, config = job["device"], job["config"]
    model = transformers.BertForPreTraining(their_config(config["model"]))
    model = model.to(device).train()
    variants = {"as_shipped": AsShipped, "masked_head": MaskedHead}
    loss_of: Any = variants[job["variant"]](model)
    if job["compile"]:
        loss_of = torch.compile(loss_of)
    optimizer = adamw(model, config["optimizer"])
    num_microbatches = config["microbatches"]
    chunks = [values.chunk(num_microbatches) for values in rows.values()]
    microbatches = [
        dict(zip(rows, parts, strict=True)) for parts in zip(*chunks, strict=True)
    ]
    autocast = config["model"]["dtype"] == "bfloat16"

    def step() -> None:
        for microbatch in microbatches:
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = loss_of(microbatch) / num_microbatches
            loss.backward()
        norm = config["optimizer"]["max_grad_norm"]
        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def inference(job: dict[str, Any], rows: Tensors) -> tuple[Any, Callable[[], None]]:
    """Return the model, and a step: hidden states and pooled vectors, no dropout."""
    config = job["config"]["model"]
    model = transformers.BertModel(their_config(config))
    model = model.to(job["device"], getattr(torch, config["dtype"])).eval()
    encode = torch.compile(model) if job["compile"] else model

    def step() -> None:
        with torch.inference_mode():
            encode(**rows)

    return model, step


class Worker:
    """A model on a device, after its first step."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.device = job["device"]
        if self.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU where JAX does.")
        torch.set_num_threads(job["threads"] or num_cores())
        # As JAX does by default on GPUs that can: float32 products in TensorFloat32.
        torch.set_float32_matmul_precision("high")
        torch.manual_seed(0)
        with np.load(job["rows"]) as arrays:
            rows = {k: torch.from_numpy(v).to(self.device) for k, v in arrays.items()}
        make = inference if job["variant"] == "encoder" else training
        model, self.step = make(job, rows)
        start = time.perf_counter()
        self.step()
        self.wait()
        self.figures = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "first_step_seconds": time.perf_counter() - start,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "threads": torch.get_num_threads(),
        }
        if job["compile"]:
            # A second call may compile again, which must not be timed either.
            self.step()

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def time_steps(self, steps: int) -> Figures:
        """Run one step untimed, then `steps`; return their time and the peak memory.

        A GPU's cached memory is released for the other processes.
        """
        seconds = seconds_per_step(self.step, lambda _: self.wait(), steps)
        answer: Figures = {"seconds": seconds, "peak_memory_mib": peak_memory_mib()}
        if self.device == "cuda":
            answer["device_peak_mib"] = torch.cuda.max_memory_allocated() / (1 << 20)
            torch.cuda.empty_cache()
        return answer


def main() -> None:
    """Answer each line of standard input with a line of JSON."""
    # Send what libraries print to stderr, away from the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with contextlib.closing(answers):
        try:
            worker = Worker(json.loads(sys.stdin.readline()))
            print(json.dumps(worker.figures), file=answers)
            for line in sys.stdin:
                print(json.dumps(worker.time_steps(int(line.split()[1]))), file=answers)
        except Exception as error:
            first = str(error).strip().split("\n")[0][:300]
            message = f"{type(error).__name__}: {first}"
            print(json.dumps({"error": message}), file=answers)
            raise


if __name__ == "__main__":
    main()
