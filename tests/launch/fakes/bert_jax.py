"""Stands for the bert-jax command: `plan` says what each start of a phase comes to.

An entry is an exit code, `preempt` (the pod is taken away), `term` (train until
SIGTERM, then write a checkpoint), `hang` (deaf to SIGTERM), or `go` (train until the
world has a file of that name), or `STEP CODE`: a whole checkpoint of that step, then
that exit code. It may be one for all processes, or one for each.
"""

import os
import signal
import sys
import time

from world import WORLD, local, log, read, write

OURS = (
    *("BERT_JAX_", "CUDA_", "JAX_PLATFORMS", "JAX_NUM_CPU", "JAX_COMPILATION_"),
    *("SLURM_", "SRUN_", "XLA_FLAGS"),
)
process = os.environ.get("FAKE_WORKER") or os.environ.get("BERT_JAX_PROCESS_ID", "0")
phase = "512" if "--init-from" in sys.argv else "128"
before = read(f"starts-{phase}-{process}", 0)
write(f"starts-{phase}-{process}", before + 1)
log(
    "bert-jax",
    phase=phase,
    process=process,
    environment={k: v for k, v in os.environ.items() if k.startswith(OURS)},
)
received: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
write(f"ready-{phase}-{process}-{before}", True)

entries = read("plan", {}).get(phase, [0])
entry = entries[min(before, len(entries) - 1)]
peers = list(entry) if isinstance(entry, dict) else ["0", "1"]
if isinstance(entry, dict) or entry == "preempt":
    # What one does is to find the others at work, however slow the machine is.
    waiting = [WORLD / f"ready-{phase}-{peer}-{before}.json" for peer in peers]
    for _ in range(1500):
        if all(path.exists() for path in waiting):
            break
        time.sleep(0.02)
if isinstance(entry, dict):
    entry = entry[process]
if isinstance(entry, int):
    sys.exit(entry)
if entry[0].isdecimal():
    step, code = entry.split()
    run = local(sys.argv[sys.argv.index("--workdir") + 1])
    (run / "checkpoints" / step).mkdir(parents=True, exist_ok=True)
    (run / "checkpoints" / step / "manifest.json").touch()
    sys.exit(int(code))
if entry == "preempt" and process == "0":
    write("preempted", read("when_preempted", ["SUSPENDING", "SUSPENDED"]))
for _ in range(1500):
    time.sleep(0.02)
    if entry == "go" and (WORLD / "go").exists():
        sys.exit(0)
    if entry == "term" and received:
        time.sleep(0.2)  # the checkpoint, during which a second SIGTERM would do harm
        log("checkpoint", process=process, signals=len(received))
        sys.exit(143)
log("outlived", process=process)
sys.exit(99)
