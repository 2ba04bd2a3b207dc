"""Stands for gcloud, and for a pod of two workers: each a folder as its home.

`lives` holds the states through which each created pod goes, one a question;
`preempted` those that follow when a trainer says so; `ssh_failures` how many calls get
no answer; `lost_node` which node of several gets none, and
`offline` that Google Cloud does not answer at all. The nodes of several slices, NAME-0
and NAME-1, have a worker each.
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
        *("--node-count", "--node-prefix"),
        *("--valid-until-duration", "--service-account", "--network", "--subnetwork"),
    },
    "queued-resources describe": set(),
    "queued-resources delete": {"--force", "--async"},
    "tpu-vm ssh": {"--worker", "--command", "--ssh-flag", "--internal-ip"},
    "tpu-vm scp": {"--worker", "--scp-flag", "--recurse", "--internal-ip"},
}


def homes() -> list[Path]:
    return [WORLD / "worker 0", WORLD / "worker 1"]


def workers(node: str) -> list[tuple[int, Path]]:
    """The numbers and homes of a node's workers."""
    both = list(enumerate(homes()))
    return both[int(node[-1]) :][:1] if node[-2:] in ("-0", "-1") else both


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


def on_workers(node: str, command: str) -> None:
    """Run it by each worker's shell, which has none of the launcher's variables."""
    failures = read("ssh_failures", 0)
    gone = node == read("lost_node", "") or read("queue", [])[:1] != ["ACTIVE"]
    if failures or gone:
        write("ssh_failures", max(0, failures - 1))
        sys.exit(255)
    worst = 0
    for number, home in workers(node):
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
    command = next(a for a in arguments if a.startswith("--command="))
    on_workers(arguments[4], command[10:])
elif verb == "tpu-vm scp":
    node, _, target = arguments[5].partition(":")
    for _, home in workers(node):
        home.mkdir(exist_ok=True)
        shutil.copy(arguments[4], home / target)
else:
    refuse(f"no such command: {arguments}")
