#!/usr/bin/env bash
# A TPU slice under GKE, as a JobSet: the way for v5p, v6e and later.
#
#   IMAGE=… DATA_128=gs://… DATA_512=gs://… WORKDIR=gs://… launch/gke.sh up [--dry-run]
#
#   render    print the JobSet
#   up        apply it; again, and nothing changes
#   wait      until it is over; exit code 0: completed, 1: failed, 75: no answer
#   status · logs · delete
#
# The cluster does the rest. docs/launch/gke.md tells how it is to be prepared.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

NAME=${NAME:-bert-jax}
NAMESPACE=${NAMESPACE:-default}
SERVICE_ACCOUNT=${SERVICE_ACCOUNT:-default} # may read the datasets, and write the workdir
TPU_ACCELERATOR=${TPU_ACCELERATOR:-tpu-v6e-slice}
TPU_TOPOLOGY=${TPU_TOPOLOGY:-4x4}
HOSTS=${HOSTS:-4}                    # the chips of the topology / CHIPS_PER_HOST
CHIPS_PER_HOST=${CHIPS_PER_HOST:-4}
MAX_RESTARTS=${MAX_RESTARTS:-10}     # in a row without a new whole checkpoint
POLL_SECONDS=${POLL_SECONDS:-60}
MAX_FAILURES=${MAX_FAILURES:-5}      # of kubectl in a row, while waiting
GCLOUD_IMAGE=${GCLOUD_IMAGE:-gcr.io/google.com/cloudsdktool/google-cloud-cli:slim}
IMAGE=${IMAGE:-}                     # what launch/gke/Dockerfile builds
DATA_128=${DATA_128:-}               # gs://
DATA_512=${DATA_512:-}
WORKDIR=${WORKDIR:-}
CONFIG_128=${CONFIG_128:-}           # in the image: /opt/bert_jax/configs/…; empty: base
CONFIG_512=${CONFIG_512:-}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}

dry_run=0 verb=''

run() {
  if ((dry_run)); then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}
kube() { run kubectl --namespace "$NAMESPACE" "$@"; }

# JSON's string of $1, which has no control characters but newlines.
quoted() {
  local value=${1//\\/\\\\}
  value=${value//\"/\\\"}
  echo "\"${value//$'\n'/\\n}\""
}

# Numbers go in as they are, the rest in quotes: JSON's, which YAML reads too.
render() {
  local text name value
  for name in IMAGE DATA_128 DATA_512 WORKDIR; do
    if [ -z "${!name}" ]; then echo "gke.sh: $name is not set." >&2 && return 2; fi
  done
  for name in HOSTS CHIPS_PER_HOST MAX_RESTARTS; do
    if ! [[ ${!name} =~ ^[0-9]+$ ]]; then
      echo "gke.sh: $name=${!name} is not a number." >&2 && return 2
    fi
  done
  text=$(<"$root/launch/gke/jobset.yaml")
  for name in NAME SERVICE_ACCOUNT TPU_ACCELERATOR TPU_TOPOLOGY HOSTS CHIPS_PER_HOST \
    MAX_RESTARTS GCLOUD_IMAGE IMAGE DATA_128 DATA_512 WORKDIR CONFIG_128 CONFIG_512 \
    TRAIN_OPTIONS; do
    value=${!name}
    case $name in
      HOSTS | CHIPS_PER_HOST | MAX_RESTARTS) ;;
      *) value=$(quoted "$value") ;;
    esac
    text=${text//"\${$name}"/"$value"}
  done
  # Last: nothing in it is to be filled in.
  value=$(quoted "$(<"$root/launch/progress.sh")")
  text=${text//"\${PROGRESS}"/"$value"}
  printf '%s\n' "$text"
}

up() {
  local text
  text=$(render) || return
  kube apply --filename - <<<"$text"
  if ((dry_run)); then echo "# ${text//$'\n'/$'\n'# }"; fi
}

wait_until_over() {
  local state failures=0
  while :; do
    if state=$(kube get jobset "$NAME" '--output=jsonpath={.status.terminalState}'); then
      failures=0
    elif failures=$((failures + 1)) && ((failures >= MAX_FAILURES)); then
      echo "gke.sh: no answer about $NAME, see above; the cluster goes on without us." >&2
      return 75
    fi
    case $state in
      Completed) return 0 ;;
      Failed) echo "gke.sh: $NAME failed; see: launch/gke.sh logs" >&2 && return 1 ;;
    esac
    if ((dry_run)); then echo "$state" && return; fi
    sleep "$POLL_SECONDS"
  done
}

usage() {
  echo "usage: launch/gke.sh render|up|wait|status|logs|delete [--dry-run]" >&2
  exit 2
}

for argument in "$@"; do
  case $argument in
    --dry-run) dry_run=1 ;;
    *) if [ -n "$verb" ]; then usage; else verb=$argument; fi ;;
  esac
done
mine=jobset.sigs.k8s.io/jobset-name=$NAME
case $verb in
  render | up) "$verb" ;;
  wait) wait_until_over ;;
  status) kube get jobset "$NAME" && kube get jobs,pods --selector "$mine" ;;
  logs) kube logs --selector "$mine" --container trainer --prefix --tail "${LOG_LINES:-50}" ;;
  delete) kube delete jobset "$NAME" --ignore-not-found ;;
  *) usage ;;
esac
