#!/usr/bin/env bash
# A Cloud TPU pod by queued resource: both phases, through preemptions, to the deletion.
#
#   DATA_128=gs://… DATA_512=gs://… WORKDIR=gs://… launch/tpu_pod.sh all [--dry-run|--help]
#
#   up        ask for the pod, and wait until it is ACTIVE
#   install   copy this repository to every worker, and install it
#   data      copy the datasets from gs:// to the disk of every worker
#   pretrain  all of these and the training, again after every preemption
#   all       pretrain, then delete
#   status · logs · delete
#
# Each can be killed and started again. Exit codes: 0 done, 1 the run failed, 2 a mistake to
# be mended, 75 Google Cloud does not answer. docs/launch/tpu-pod.md tells the rest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

DATA_128=${DATA_128:-}                     # required: gs:// or on every worker
DATA_512=${DATA_512:-}                     # required
WORKDIR=${WORKDIR:-}                       # required: gs://, for every worker writes it
NAME=${NAME:-bert-jax}                     # of the queued resource and of its node
ZONE=${ZONE:-us-west4-a}
PROJECT=${PROJECT:-}                       # empty: gcloud's own
ACCELERATOR_TYPE=${ACCELERATOR_TYPE:-v5litepod-16}
RUNTIME_VERSION=${RUNTIME_VERSION:-}       # empty: the one of ACCELERATOR_TYPE
SLICES=${SLICES:-1}                        # more than 1: nodes NAME-0, NAME-1, …
SPOT=${SPOT:-1}                            # 0: on demand
VALID_UNTIL_DURATION=${VALID_UNTIL_DURATION:-} # such as 6h: how long to wait in the queue
MAX_RESTARTS=${MAX_RESTARTS:-10}           # tries in a row without a new whole checkpoint
MAX_SSH_FAILURES=${MAX_SSH_FAILURES:-5}    # in a row, of any one call to Google Cloud
POLL_SECONDS=${POLL_SECONDS:-60}
KEEP=${KEEP:-0}                            # 1: `all` leaves a pod whose run failed, at cost
CONFIG_128=${CONFIG_128:-}                 # bert_jax/configs/… on a worker; empty: base
CONFIG_512=${CONFIG_512:-}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}           # for both phases: --mesh.fsdp 4
INITIALIZATION_TIMEOUT=${INITIALIZATION_TIMEOUT:-900} # s: ssh starts workers one by one
HANG_TIMEOUT_MINUTES=${HANG_TIMEOUT_MINUTES:-30}
WORKER=${WORKER:-0}                        # whose log `logs` shows, of every slice; or all
LOG_LINES=${LOG_LINES:-}                   # empty: 50

pretended=NONE
scratch=''
# shellcheck source=launch/arguments.sh
source "$root/launch/arguments.sh"
# shellcheck source=launch/tpu_calls.sh
source "$root/launch/tpu_calls.sh"
# shellcheck source=launch/progress.sh
source "$root/launch/progress.sh"

# Pods created anew and starts on the same one are tries alike.
again() {
  count_try "$WORKDIR"
  if ((tries > MAX_RESTARTS)); then
    say "$1; no new checkpoint in MAX_RESTARTS=$MAX_RESTARTS tries."
    exit 1
  fi
  say "$1; try $tries of $MAX_RESTARTS from the newest checkpoint."
}

give_up() {
  say "gcloud does not succeed, see above. $NAME is left as it is; start this again."
  exit 75
}

up() {
  local now before='' failures=0
  while :; do
    now=$(state)
    if [ "$now" != "$before" ]; then say "$NAME is $now"; fi
    case $now in
      ACTIVE) return ;;
      NONE)
        if [ -n "$before" ] && [ "$before" != NONE ] && [ "$before" != UNKNOWN ]; then
          say "somebody deleted $NAME; it is not created again." && exit 1
        fi
        if create; then continue; fi
        failures=$((failures + 1))
        ;;
      UNKNOWN) failures=$((failures + 1)) ;;
      SUSPENDED | FAILED)
        # Neither ever becomes ACTIVE again.
        again "$NAME is $now"
        delete
        before=''
        continue
        ;;
      # CREATING, ACCEPTED, WAITING_FOR_RESOURCES, PROVISIONING, SUSPENDING, DELETING
      *) failures=0 ;;
    esac
    before=$now
    if ((failures >= MAX_SSH_FAILURES)); then give_up; fi
    pause
  done
}

install() {
  local archive=$scratch/bert_jax.tar.gz
  # Files and not a commit: what you see here is what runs there.
  run tar -czf "$archive" -C "$root" --exclude=__pycache__ \
    bert_jax configs launch setup.cfg pyproject.toml README.md LICENSE &&
    on_nodes copy_to "$archive" &&
    on_nodes ssh_to all 'mkdir -p bert_jax && tar -xzf bert_jax.tar.gz -C bert_jax' &&
    on_workers all install
}

data() { on_workers all data; }

# Wait for the trainers. Sets outcome: done; mistake (2 on any worker); stopped (the pod is
# there, the training is not); lost (the pod is going); deleted; unreachable.
watch() {
  local lines now silent=0 failing=0
  while :; do
    if lines=$(statuses 'exit 0'); then
      silent=0
      if grep -q 'exit 2$' <<<"$lines"; then outcome='mistake' && return; fi
      if ! grep -qv 'exit 0$' <<<"$lines"; then outcome='done' && return; fi
      if grep -qv -e 'running$' -e 'exit 0$' <<<"$lines"; then
        # The others, who wait for it in a collective, have one more poll to end as well.
        failing=$((failing + 1))
        if ((failing > 1)) || ! grep -q 'running$' <<<"$lines"; then
          say "$lines"
          outcome='stopped' && return
        fi
      fi
    else
      silent=$((silent + 1))
      now=$(state)
      case $now in
        ACTIVE | UNKNOWN) say "no answer from every worker; $NAME is $now" ;;
        NONE | DELETING) outcome='deleted' && return ;;
        *) outcome='lost' && return ;;
      esac
      if ((silent >= MAX_SSH_FAILURES)); then
        if [ "$now" = UNKNOWN ]; then give_up; fi
        outcome='unreachable' && return
      fi
    fi
    pause
  done
}

# Bring the training under way, unless it is: a launcher that was killed finds it so.
begin() {
  local lines
  lines=$(statuses idle) || lines=''
  if [ -n "$lines" ] && ! grep -qv 'running$' <<<"$lines"; then return; fi
  if grep -q 'running$' <<<"$lines"; then on_workers all stop || return; fi
  install && data && on_workers all start
}

pretrain() {
  local failures=0 outcome
  while :; do
    up
    if ! begin; then
      failures=$((failures + 1))
      if ((failures >= MAX_SSH_FAILURES)) && [ "$(state)" = ACTIVE ]; then
        say "$NAME is ACTIVE but cannot be set up; see above." && return 1
      fi
      pause
      continue
    fi
    failures=0
    watch
    case $outcome in
      done) return 0 ;;
      mistake)
        say "exit code 2, a mistake to be mended: no other try."
        on_workers all stop || true
        return 2
        ;;
      deleted) say "somebody deleted $NAME; it is not created again." && return 1 ;;
      lost) say "$NAME is being taken away" ;;
      stopped) again "the training stopped" ;;
      unreachable) again "$NAME does not answer" && delete ;;
    esac
  done
}

all() {
  local code=0
  # In a subshell, so that nothing in it ends us before the deletion.
  (pretrain) || code=$?
  # Out of sight, the training may well go on.
  if ((code == 75)); then return "$code"; fi
  pretended=ACTIVE
  if ((code)); then on_workers all log || true; fi
  if ((code && KEEP)); then
    say "$NAME is kept, and COSTS until: NAME=$NAME ZONE=$ZONE launch/tpu_pod.sh delete"
  else
    delete
  fi
  return "$code"
}

verbs='up install data pretrain all status logs delete'
read_arguments tpu_pod.sh "$verbs" "$@"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ((dry_run)); then verb=${verb:-all} POLL_SECONDS=0; fi
case $verb in
  data | pretrain | all) require_run_variables && require_bucket ;;
  '') wrong_usage "$verbs" ;;
esac
require_numbers 1 SLICES MAX_SSH_FAILURES
require_numbers 0 SPOT KEEP MAX_RESTARTS
if [ -z "$RUNTIME_VERSION" ]; then
  RUNTIME_VERSION=$(runtime_version "$ACCELERATOR_TYPE") || exit
fi
nodes=("$NAME")
if ((SLICES > 1)); then
  nodes=()
  for ((slice = 0; slice < SLICES; slice++)); do nodes+=("$NAME-$slice"); done
fi
case $verb in
  up | install | data | pretrain | all | delete) "$verb" ;;
  status) state && on_workers all status ;;
  logs) on_workers "$WORKER" log ;;
esac
