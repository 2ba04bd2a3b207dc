"""Stands for gcloud, and for a pod of two workers: each a folder as its home.

`lives` holds the states through which each created pod goes, one a question;
`preempted` those that follow when a trainer says so; `ssh_failures` how many calls get
no answer; `offline` that Google Cloud does not answer at all.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import storage
from world import WORLD, log, read, write

arguments = sys.argv[1:]
if arguments[0] == "storage":
    storage.main(*arguments[1:])
    sys.exit(0)

# Some of the options that gcloud's own help (SDK 528) has, and all that we use.
EVERYWHERE = {"--zone", "--project", "--quiet", "--format"}
OPTIONS = {
    "queued-resources create": {
        *("--node-id", "--accelerator-type", "--runtime-version", "--spot"),
        *("--valid-until-duration", "--service-account", "--network", "--subnetwork"),
    },
    "queued-resources describe": set(),
    "queued-resources delete": {"--force", "--async"},
    "tpu-vm ssh": {"--worker", "--command", "--ssh-flag", "--internal-ip"},
    "tpu-vm scp": {"--worker", "--scp-flag", "--recurse", "--internal-ip"},
}


def homes() -> list[Path]:
    return [WORLD / "worker 0", WORLD / "worker 1"]


def take_the_pod_away() -> None:
    """Everything on the workers ends, and their disks are gone."""
    for home in homes():
        with suppress(FileNotFoundError, ProcessLookupError):
            group = int((home / "bert_jax_run" / "group.pid").read_text())
            os.killpg(group, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def refuse(message: str) -> None:
    print(f"ERROR: (gcloud.compute.tpus) {message}", file=sys.stderr)
    sys.exit(1)


def on_workers(command: str) -> None:
    """Run it by each worker's shell, which has none of the launcher's variables."""
    failures = read("ssh_failures", 0)
    if failures or read("queue", [])[:1] != ["ACTIVE"]:
        write("ssh_failures", max(0, failures - 1))
        sys.exit(255)
    worst = 0
    for number, home in enumerate(homes()):
        home.mkdir(exist_ok=True)
        environment = {
            "FAKE_WORLD": str(WORLD),
            "FAKE_WORKER": str(number),
            "HOME": str(home),
            "PATH": f"{WORLD / 'worker_bin'}:{os.environ['PATH']}",
        }
        done = subprocess.run(["bash", "-c", command], cwd=home, env=environment)
        worst = worst or done.returncode
    sys.exit(worst)


preempted = read("preempted", None)
if preempted:
    take_the_pod_away()
    write("queue", preempted)
    write("preempted", None)
queue = read("queue", [])
verb = " ".join(arguments[2:4])
log("gcloud", verb=verb, state=(queue or ["NONE"])[0])
told = {word.partition("=")[0] for word in arguments if word.startswith("--")}
if unknown := told - OPTIONS.get(verb, set()) - EVERYWHERE:
    refuse(f"unrecognized arguments: {unknown}")
if read("offline", False):
    refuse("There was a problem refreshing your current auth tokens.")
if verb == "queued-resources create":
    if queue:
        refuse("ALREADY_EXISTS: Resource already exists")
    lives = read("lives", [])
    write("queue", lives.pop(0) if lives else ["ACTIVE"])
    write("lives", lives)
elif verb == "queued-resources describe":
    if not queue:
        refuse("NOT_FOUND: Resource was not found")
    print(queue[0])
    write("queue", queue[1:] or queue)
elif verb == "queued-resources delete":
    take_the_pod_away()
    write("queue", [])
elif verb == "tpu-vm ssh":
    on_workers(next(a for a in arguments if a.startswith("--command="))[10:])
elif verb == "tpu-vm scp":
    for home in homes():
        home.mkdir(exist_ok=True)
        shutil.copy(arguments[4], home / arguments[5].partition(":")[2])
else:
    refuse(f"no such command: {arguments}")
