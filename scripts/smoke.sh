#!/usr/bin/env bash
# Runs the short form of experiments. It fails where one does not run to its end, or where a bound does not hold twice in a row
# (a machine's other load comes and goes); of those after `--`, whose bounds a busy machine can miss, only the former counts:
# `make prove` judges them.
# usage: scripts/smoke.sh WEIRGATE EXPERIMENT ... -- EXPERIMENT ...
set -euo pipefail
cd "$(dirname "$0")/.."
weirgate=$1; shift
status=0
judged=yes
for name in "$@"; do
  if [ "$name" = -- ]; then judged=no; continue; fi
  short() { rm -rf "lab-out/$name"; "$weirgate" lab run "$name" --quick; }
  ended() { [ -s "lab-out/$name/result.json" ]; }
  short && continue
  if ended && [ $judged = no ]; then
    echo "smoke: $name ran to its end; a bound does not hold on this machine now, which is not counted here"
  elif ended && echo "smoke: a bound of $name does not hold; once more" && short; then
    continue
  else
    status=1
  fi
done
exit $status
