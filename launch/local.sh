#!/usr/bin/env bash
# Several processes on one host, joined by jax.distributed over loopback.
#
#   DATA_128=… DATA_512=… WORKDIR=runs/base launch/local.sh [--dry-run|--help]
#
# Start it again to go on. docs/launch/local.md tells the rest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

PROCESSES=${PROCESSES:-2}
DEVICES=${DEVICES:-cpu}              # cpu, or gpu: one device a process
PORT=${PORT:-8476}                   # any free one
MAX_RESTARTS=${MAX_RESTARTS:-3}      # tries in a row without a new whole checkpoint
GRACE_SECONDS=${GRACE_SECONDS:-120}  # for a checkpoint, before the rest is killed
POLL_SECONDS=${POLL_SECONDS:-1}
export INITIALIZATION_TIMEOUT=${INITIALIZATION_TIMEOUT:-300} # s: all start at once
export HANG_TIMEOUT_MINUTES=${HANG_TIMEOUT_MINUTES:-30}
# shellcheck source=launch/arguments.sh
source "$root/launch/arguments.sh"
# shellcheck source=launch/progress.sh
source "$root/launch/progress.sh"
read_arguments 'local.sh phases.sh' '' "$@"
require_run_variables
require_numbers 1 PROCESSES
require_numbers 0 MAX_RESTARTS GRACE_SECONDS
if [ "$DEVICES" = gpu ]; then
  export NCCL_TIMEOUT_SECONDS=${NCCL_TIMEOUT_SECONDS:-1800}
fi

# Which GPUs are ours, if that is said; else the first ones.
IFS=, read -r -a gpus <<<"${CUDA_VISIBLE_DEVICES:-}"
if [ "$DEVICES" = gpu ] && ((${#gpus[@]} && ${#gpus[@]} < PROCESSES)); then
  echo "local.sh: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES for $PROCESSES PROCESSES." >&2
  exit 2
fi

pids=() codes=() signalled=0

# Each trainer takes a second signal to mean "now, without a checkpoint": it gets one.
terminate() {
  local pid
  for pid in ${pids[@]+"${pids[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
}
trap 'if ((!signalled)); then signalled=143; terminate; fi' TERM
trap 'if ((!signalled)); then signalled=130; terminate; fi' INT

start() {
  local phase=$1 i command
  pids=() codes=()
  for ((i = 0; i < PROCESSES; i++)); do
    command=(env "PHASES=$phase" FORWARD_TERM=1
      "BERT_JAX_COORDINATOR=127.0.0.1:$PORT" "BERT_JAX_NUM_PROCESSES=$PROCESSES"
      "BERT_JAX_PROCESS_ID=$i")
    case $DEVICES in
      gpu) command+=("CUDA_VISIBLE_DEVICES=${gpus[i]:-$i}") ;;
      # Several CPU devices in each of several processes can deadlock.
      cpu) command+=(JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=1) ;;
      *)
        echo "local.sh: DEVICES=$DEVICES: cpu or gpu." >&2
        exit 2
        ;;
    esac
    command+=(bash "$root/launch/phases.sh")
    if ((dry_run)); then
      printf '%q ' "${command[@]}"
      printf '\n# which calls: '
      "${command[@]}" --dry-run
    else
      # Job control gives it a process group of its own, out of reach of Ctrl-C.
      set -m
      "${command[@]}" &
      set +m
      pids+=("$!")
    fi
  done
  # A signal may have come before all were in the list; each passes on one only.
  if ((signalled)); then terminate; fi
}

# Collect exit codes until all have ended, or one has failed and the others, which now
# wait for it in a collective, have had their time.
collect() {
  local i ended failed=0 deadline=0
  while :; do
    ended=0
    for i in "${!pids[@]}"; do
      if [ -z "${codes[i]:-}" ] && ! kill -0 "${pids[i]}" 2>/dev/null; then
        codes[i]=0
        wait "${pids[i]}" || codes[i]=$?
        if ((codes[i])); then failed=1; fi
      fi
      if [ -n "${codes[i]:-}" ]; then ended=$((ended + 1)); fi
    done
    if ((ended == ${#pids[@]})); then return; fi
    if ((failed || signalled)); then
      if ((!deadline)); then deadline=$((SECONDS + GRACE_SECONDS)); fi
      if ((SECONDS >= deadline)); then return; fi
    fi
    sleep "$POLL_SECONDS" || true
  done
}

# What is still there hangs: end its whole group.
sweep() {
  local i
  for i in "${!pids[@]}"; do
    if [ -n "${codes[i]:-}" ]; then continue; fi
    kill -KILL -- "-${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
}

# 2 before all: nothing is gained by another try. 143 before the rest, and SIGKILL before
# what those who lost their peer end with.
verdict() {
  local code other=0
  for code in ${codes[@]+"${codes[@]}"}; do
    case $code in
      0) ;;
      2) echo 2 && return ;;
      143) other=143 ;;
      137) if ((other != 143)); then other=137; fi ;;
      *) if ((other == 0)); then other=$code; fi ;;
    esac
  done
  echo "$other"
}

for phase in 128 512; do
  while :; do
    start "$phase"
    if ((dry_run)); then break; fi
    collect
    sweep
    code=$(verdict)
    if ((signalled)); then exit "$signalled"; fi
    if ((code == 0)); then break; fi
    if ! can_help "$code"; then exit "$code"; fi
    count_try "$WORKDIR"
    why="phase $phase ended with $code"
    if ((tries > MAX_RESTARTS)); then
      echo "local.sh: $why; no new checkpoint in MAX_RESTARTS=$MAX_RESTARTS tries." >&2
      exit "$code"
    fi
    echo "local.sh: $why; try $tries of $MAX_RESTARTS from the newest checkpoint." >&2
  done
done
