#!/usr/bin/env bash
# Runs the short form of experiments. It fails where one does not run to its end, or where a bound does not hold.
# usage: scripts/smoke.sh WEIRGATE EXPERIMENT ...
set -euo pipefail
cd "$(dirname "$0")/.."
weirgate=$1; shift
status=0
for name in "$@"; do
  "$weirgate" lab run "$name" --quick || status=1
done
exit $status
