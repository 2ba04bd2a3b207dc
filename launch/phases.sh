#!/usr/bin/env bash
# One process of a run: rows of 128 tokens, then of 512. Every launcher ends here.
#
# The same call again goes on from the newest whole checkpoint, and a phase that is over
# ends at once with 0. The exit code is the trainer's: 0 done, 2 what is wrong before the
# first step, 1 the run's own failure, 134 a lost peer, 137 killed, 143 stopped by SIGTERM
# with a whole checkpoint. launch/progress.sh says after which of them to try again.
#
#   DATA_128=… DATA_512=… WORKDIR=… launch/phases.sh [--dry-run|--help]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

DATA_128=${DATA_128:-}               # required: the dataset of rows of 128 tokens
DATA_512=${DATA_512:-}               # required: of 512; both the same for every process
WORKDIR=${WORKDIR:-}                 # required: of the run; the phases have one each in it
BERT_JAX=${BERT_JAX:-bert-jax}       # the command
PHASES=${PHASES:-128 512}            # in this order; local.sh and slurm.sbatch set it
CONFIG_128=${CONFIG_128:-$root/configs/bert_base_128.py}
CONFIG_512=${CONFIG_512:-$root/configs/bert_base_512.py}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}     # for both phases, split at white space: --mesh.fsdp 4
FORWARD_TERM=${FORWARD_TERM:-0}      # 1 where SIGTERM reaches this script alone; launchers set it
PID_FILE=${PID_FILE:-}               # for the trainer's process id; tpu_worker.sh sets it
# With neither, the last phase's trainer takes this shell's place: it gets the signals that
# are for this process, be they for this one alone or for the whole group.
INITIALIZATION_TIMEOUT=${INITIALIZATION_TIMEOUT:-300} # s to find all processes and devices
HANG_TIMEOUT_MINUTES=${HANG_TIMEOUT_MINUTES:-30} # without a step, then the trainer aborts
NCCL_TIMEOUT_SECONDS=${NCCL_TIMEOUT_SECONDS:-}   # that GPUs wait for each other; empty: no end

# shellcheck source=launch/arguments.sh
source "$root/launch/arguments.sh"
read_arguments phases.sh '' "$@"
require_run_variables

if [ -n "$NCCL_TIMEOUT_SECONDS" ]; then
  flag=--xla_gpu_nccl_termination_timeout_seconds=$NCCL_TIMEOUT_SECONDS
  export XLA_FLAGS="$flag${XLA_FLAGS:+ $XLA_FLAGS}" # XLA takes the last of two
fi
if ((!dry_run)) && ! command -v "$BERT_JAX" >/dev/null; then
  echo "phases.sh: there is no command $BERT_JAX; install the package." >&2
  exit 2
fi

stopping=0 child='' forwarded=0

# The trainer takes a second SIGTERM to mean "now, without a checkpoint". So we pass ours
# on at most once, and not at all where the whole process group or cgroup has got it.
forward() {
  if ((FORWARD_TERM && !forwarded)) && [ -n "$child" ]; then
    forwarded=1
    kill -TERM "$child" 2>/dev/null || true
  fi
}
trap 'stopping=$((stopping + 1)); forward' TERM

train() {
  local code=0 interrupted
  "$BERT_JAX" "$@" &
  child=$!
  if [ -n "$PID_FILE" ]; then echo "$child" >"$PID_FILE"; fi
  if ((stopping)); then forward; fi
  while :; do
    interrupted=$stopping code=0
    wait "$child" || code=$?
    # A signal ends `wait` before the trainer ends: wait for it again.
    ((interrupted == stopping)) && break
  done
  child=''
  return "$code"
}

# Empty: programs are not kept.
if [ -n "${JAX_COMPILATION_CACHE_DIR+set}" ]; then chosen_cache=$JAX_COMPILATION_CACHE_DIR; fi
# -d "": every line, not only the first; the end of the text is no error.
read -r -d '' -a options <<<"$TRAIN_OPTIONS" || true
read -r -d '' -a phases <<<"$PHASES" || true
for i in "${!phases[@]}"; do
  phase=${phases[i]}
  if ((stopping)); then exit 143; fi
  case $phase in
    128) arguments=("$CONFIG_128" --workdir "$WORKDIR/128" --data.path "$DATA_128") ;;
    512) # whether with the first's optimizer, the configuration says
      arguments=("$CONFIG_512" --workdir "$WORKDIR/512" --data.path "$DATA_512"
        --init-from "$WORKDIR/128")
      ;;
    *)
      echo "phases.sh: PHASES=$PHASES: phases are 128 and 512." >&2
      exit 2
      ;;
  esac
  arguments+=(--initialization-timeout "$INITIALIZATION_TIMEOUT"
    --hang-timeout-minutes "$HANG_TIMEOUT_MINUTES" ${options[@]+"${options[@]}"})
  # The next start finds the programs that this one compiles, be it in a new container or on
  # another host. Connected processes choose the same directory themselves, after they have
  # checked that all see the same files there.
  if [ "${BERT_JAX_DISTRIBUTED:-0}" = 0 ] && [ -z "${BERT_JAX_COORDINATOR:-}" ]; then
    export JAX_COMPILATION_CACHE_DIR=${chosen_cache-$WORKDIR/$phase/compilation_cache}
  fi
  if ((dry_run)); then
    printf '%q ' "$BERT_JAX" pretrain "${arguments[@]}"
    echo
    continue
  fi
  if ((i == ${#phases[@]} - 1 && !FORWARD_TERM)) && [ -z "$PID_FILE" ]; then
    trap - TERM
    if ((stopping)); then exit 143; fi
    exec "$BERT_JAX" pretrain "${arguments[@]}"
  fi
  train pretrain "${arguments[@]}" || exit $?
done
