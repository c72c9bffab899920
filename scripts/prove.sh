#!/usr/bin/env bash
# Runs experiments in full and keeps each result, dated, under docs/results.
# usage: scripts/prove.sh WEIRGATE "lab run" EXPERIMENT ...
#        scripts/prove.sh WEIRGATE "fabric figure" FIGURE ...
set -euo pipefail
cd "$(dirname "$0")/.."
weirgate=$1; read -ra command <<<"$2"; shift 2
export WEIRGATE_COMMIT=$(git describe --always --dirty)
status=0
mkdir -p docs/results
for name in "$@"; do
  "$weirgate" "${command[@]}" "$name" || status=1
  cp "lab-out/$name/result.json" "docs/results/$(date -u +%F)-$name.json"
done
exit $status
