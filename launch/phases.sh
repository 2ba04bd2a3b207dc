#!/usr/bin/env bash
# One process of a run: rows of 128 tokens, then of 512. Every launcher ends here.
#
# The same call again goes on from the newest whole checkpoint, and a phase that is over
# ends at once with 0. The exit code is the trainer's: 0 done, 2 what is wrong before the
# first step, 1 the run's own failure, 134 a lost peer, 137 killed, 143 stopped by SIGTERM
# with a whole checkpoint. launch/progress.sh says after which of them to try again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

BERT_JAX=${BERT_JAX:-bert-jax}       # the command
PHASES=${PHASES:-128 512}            # which phases, in order
CONFIG_128=${CONFIG_128:-$root/configs/bert_base_128.py}
CONFIG_512=${CONFIG_512:-$root/configs/bert_base_512.py}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}     # for both phases, split at spaces: --mesh.fsdp 4
FORWARD_TERM=${FORWARD_TERM:-0}      # 1 where SIGTERM reaches this script alone
PID_FILE=${PID_FILE:-}               # where to write the trainer's process id
# With neither, the last phase's trainer takes this shell's place: it gets the signals that
# are for this process, be they for this one alone or for the whole group.

# And without a default, for every process the same:
#   DATA_128 DATA_512   datasets of rows of 128 and 512 tokens, on a disk of this host
#   WORKDIR             the directory of the run; the phases have one each in it
for name in DATA_128 DATA_512 WORKDIR; do
  if [ -z "${!name:-}" ]; then
    echo "phases.sh: $name is not set." >&2
    exit 2
  fi
done
case ${1:-} in
  '') dry_run=0 ;;
  --dry-run) dry_run=1 ;; # print what would be called
  *)
    echo "usage: launch/phases.sh [--dry-run]" >&2
    exit 2
    ;;
esac
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

read -r -a options <<<"$TRAIN_OPTIONS"
read -r -a phases <<<"$PHASES"
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
  arguments+=(${options[@]+"${options[@]}"})
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
