#!/usr/bin/env bash
# What one worker of a TPU pod does; launch/tpu_pod.sh calls it on all of them by ssh, and
# launch/sky.yaml its `install`.
#
#   launch/tpu_worker.sh install|data|start|status|log|stop|--help
#
#   install   this repository, in VENV
#   data      copy the datasets from gs:// to DATA_ROOT
#   start     the trainer, which goes on alone; nothing, where it runs
#   status    one line: running, exit CODE, or idle
#   log       the end of its log
#   stop      ask it for a checkpoint, and wait until it has ended
#
# The trainer runs detached from ssh, so that a launcher that dies, or a laptop that
# sleeps, does not end it. A lock that trainer and supervisor inherit tells whether
# anything still runs: unlike a process id it cannot be stale, not after a reboot either.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

DATA_128=${DATA_128:-}                      # for data and start: gs:// or a local path
DATA_512=${DATA_512:-}                      # the same
PYTHON_VERSION=${PYTHON_VERSION:-3.11}      # of VENV
EXTRA=${EXTRA:-tpu}                         # of setup.cfg; launch/sky.yaml also: cuda12
STATE=${STATE:-$HOME/bert_jax_run}          # lock, log, exit code
DATA_ROOT=${DATA_ROOT:-$HOME/bert_jax_data} # local copies of what lies on gs://
VENV=${VENV:-$HOME/bert_jax_venv}           # what install makes
BERT_JAX=${BERT_JAX:-}                      # the command; empty: that of VENV
LOG_LINES=${LOG_LINES:-50}                  # that log shows
STOP_SECONDS=${STOP_SECONDS:-300}           # for a checkpoint, before the rest is killed

case ${1:-} in
  --help | -h)
    # shellcheck source=launch/arguments.sh
    source "$root/launch/arguments.sh"
    show_help "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
mkdir -p "$STATE"

# Shared, so that two who ask at once do not take each other for a trainer.
running() { ! flock --shared --nonblock "$STATE/lock" true; }

# Where the dataset $1 lies on this host; $2 is its sequence length.
local_path() {
  case $1 in
    gs://*) echo "$DATA_ROOT/$2" ;;
    *) echo "$1" ;;
  esac
}

install() {
  if running; then return; fi
  # The images carry Python 3.10; uv brings another.
  python3 -m pip install --quiet --user uv
  python3 -m uv venv --quiet --allow-existing --python "$PYTHON_VERSION" "$VENV"
  python3 -m uv pip install --quiet --python "$VENV/bin/python" "${root}[$EXTRA,gcs]"
}

data() {
  local length source target
  for length in 128 512; do
    source=DATA_$length
    target=$(local_path "${!source}" "$length")
    if [ "$target" = "${!source}" ]; then continue; fi
    mkdir -p "$target"
    # Copies what is missing or differs; the trainer verifies every checksum.
    gcloud storage rsync --recursive "${!source}" "$target"
  done
}

start() {
  exec 9>"$STATE/lock"
  if ! flock --timeout 5 9; then # somebody may just be asking
    echo "already running"
    return
  fi
  rm -f "$STATE/exit_code" "$STATE/trainer.pid"
  DATA_128=$(local_path "$DATA_128" 128)
  DATA_512=$(local_path "$DATA_512" 512)
  export DATA_128 DATA_512 BERT_JAX_DISTRIBUTED=1 PID_FILE="$STATE/trainer.pid"
  export BERT_JAX=${BERT_JAX:-$VENV/bin/bert-jax}
  setsid bash "${BASH_SOURCE[0]}" supervise >>"$STATE/log" 2>&1 </dev/null &
}

supervise() {
  local code=0
  trap : TERM
  echo $$ >"$STATE/group.pid"
  bash "$root/launch/phases.sh" || code=$?
  echo "$code" >"$STATE/exit_code.new"
  mv "$STATE/exit_code.new" "$STATE/exit_code"
}

# One line: `worker NAME running`, `worker NAME exit CODE`, or `worker NAME idle` where
# nothing was started, or what was started is gone without a word.
status() {
  if running; then
    echo "worker $(hostname) running"
  elif [ -f "$STATE/exit_code" ]; then
    echo "worker $(hostname) exit $(cat "$STATE/exit_code")"
  else
    echo "worker $(hostname) idle"
  fi
}

stop() {
  local waited=0
  if ! running; then return; fi
  kill -TERM "$(cat "$STATE/trainer.pid")" 2>/dev/null || true
  while running; do
    if ((waited >= STOP_SECONDS)); then
      kill -KILL -- "-$(cat "$STATE/group.pid")" 2>/dev/null || true
    fi
    sleep 1
    waited=$((waited + 1))
  done
}

case ${1:-} in
  install | data | start | supervise | status | stop) "$1" ;;
  log) tail -n "$LOG_LINES" "$STATE/log" ;;
  *)
    echo "usage: launch/tpu_worker.sh install|data|start|status|log|stop|--help" >&2
    exit 2
    ;;
esac
