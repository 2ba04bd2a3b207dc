#!/usr/bin/env bash
# TPU slices, or nodes with GPUs, under GKE, as a JobSet.
#
#   IMAGE=… DATA_128=gs://… DATA_512=gs://… WORKDIR=gs://… launch/gke.sh up [--dry-run|--help]
#
#   render    print the JobSet
#   up        apply it; again, and nothing changes
#   wait      until it is over; exit code 0: completed, 1: failed, 75: no answer
#   status · logs · delete
#
# The cluster does the rest. docs/launch/gke.md tells how it is to be prepared.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

IMAGE=${IMAGE:-}                     # required: what launch/gke/Dockerfile builds
DATA_128=${DATA_128:-}               # required: gs://
DATA_512=${DATA_512:-}               # required: gs://
WORKDIR=${WORKDIR:-}                 # required: gs://
DEVICES=${DEVICES:-tpu}              # tpu or gpu
NAME=${NAME:-bert-jax}
NAMESPACE=${NAMESPACE:-default}
SERVICE_ACCOUNT=${SERVICE_ACCOUNT:-default} # may read the datasets, and write the workdir
TPU_ACCELERATOR=${TPU_ACCELERATOR:-tpu-v6e-slice}
TPU_TOPOLOGY=${TPU_TOPOLOGY:-4x4}
CHIPS_PER_HOST=${CHIPS_PER_HOST:-4}
SLICES=${SLICES:-1}                  # of that topology, with a node pool each
GPU_ACCELERATOR=${GPU_ACCELERATOR:-nvidia-h100-80gb}
GPUS_PER_HOST=${GPUS_PER_HOST:-8}
HOSTS=${HOSTS:-}                     # of a slice; empty: by the topology; of GPUs, 2
MAX_RESTARTS=${MAX_RESTARTS:-10}     # in a row without a new whole checkpoint
POLL_SECONDS=${POLL_SECONDS:-60}
LOG_LINES=${LOG_LINES:-50}           # of each pod, that `logs` shows
MAX_FAILURES=${MAX_FAILURES:-5}      # of kubectl in a row, while waiting
GCLOUD_IMAGE=${GCLOUD_IMAGE:-gcr.io/google.com/cloudsdktool/google-cloud-cli:slim}
CONFIG_128=${CONFIG_128:-}           # in the image: /opt/bert_jax/configs/…; empty: base
CONFIG_512=${CONFIG_512:-}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}
INITIALIZATION_TIMEOUT=${INITIALIZATION_TIMEOUT:-1800} # s: pods load image and data first
HANG_TIMEOUT_MINUTES=${HANG_TIMEOUT_MINUTES:-30}
NCCL_TIMEOUT_SECONDS=${NCCL_TIMEOUT_SECONDS:-1800} # of GPUs

# shellcheck source=launch/arguments.sh
source "$root/launch/arguments.sh"

kube() { run kubectl --namespace "$NAMESPACE" "$@"; }

# JSON's string of $1, which has no control characters but newlines.
quoted() {
  local value=${1//\\/\\\\}
  value=${value//\"/\\\"}
  echo "\"${value//$'\n'/\\n}\""
}

numbers=(HOSTS SLICES CHIPS_PER_HOST GPUS_PER_HOST INITIALIZATION_TIMEOUT
  HANG_TIMEOUT_MINUTES NCCL_TIMEOUT_SECONDS)

fail() { echo "gke.sh: $*" >&2 && return 2; }

# Set HOSTS where it is empty; fails where the variables do not fit together.
check() {
  local chips
  require_numbers 0 MAX_RESTARTS
  require_numbers 1 "${numbers[@]}"
  case $DEVICES in
    tpu)
      if ! [[ $TPU_TOPOLOGY =~ ^[0-9]+(x[0-9]+)+$ ]]; then
        fail "TPU_TOPOLOGY=$TPU_TOPOLOGY is not like 4x4." || return
      fi
      chips=$((${TPU_TOPOLOGY//x/*}))
      HOSTS=${HOSTS:-$((chips / CHIPS_PER_HOST))}
      ;;
    gpu) HOSTS=${HOSTS:-2} chips='' ;;
    *) fail "DEVICES=$DEVICES: tpu or gpu." || return ;;
  esac
  if [ "$DEVICES" = gpu ] && ((SLICES != 1)); then
    fail "SLICES=$SLICES: GPUs have none; set HOSTS." || return
  elif [ "$DEVICES" = tpu ] && ((HOSTS * CHIPS_PER_HOST != chips)); then
    fail "HOSTS=$HOSTS x CHIPS_PER_HOST=$CHIPS_PER_HOST is not the $chips chips of" \
      "TPU_TOPOLOGY=$TPU_TOPOLOGY." || return
  fi
}

# Numbers go in as they are, the rest in quotes: JSON's, which YAML reads too.
render() {
  local text name value other=gpu
  # shellcheck disable=SC2034
  local COORDINATOR="$NAME-workers-0-0.$NAME:8476"
  require_run_variables
  require_bucket
  require_variables IMAGE=REGION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG
  check || return
  if [ "$DEVICES" = gpu ]; then other=tpu; fi
  text=$(sed -e "/ # $other\$/d" -e "s/ # $DEVICES\$//" "$root/launch/gke/jobset.yaml")
  for name in MAX_RESTARTS "${numbers[@]}"; do text=${text//"\${$name}"/"${!name}"}; done
  for name in NAME SERVICE_ACCOUNT TPU_ACCELERATOR TPU_TOPOLOGY GPU_ACCELERATOR \
    COORDINATOR GCLOUD_IMAGE IMAGE DATA_128 DATA_512 WORKDIR CONFIG_128 CONFIG_512 \
    TRAIN_OPTIONS; do
    value=$(quoted "${!name}")
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

verbs='render up wait status logs delete'
read_arguments gke.sh "$verbs" "$@"
if ((dry_run)); then verb=${verb:-up}; fi
mine=jobset.sigs.k8s.io/jobset-name=$NAME
case $verb in
  render | up) "$verb" ;;
  wait) wait_until_over ;;
  status) kube get jobset "$NAME" && kube get jobs,pods --selector "$mine" ;;
  logs) kube logs --selector "$mine" --container trainer --prefix --tail "$LOG_LINES" ;;
  delete) kube delete jobset "$NAME" --ignore-not-found ;;
  *) wrong_usage "$verbs" ;;
esac
