#!/usr/bin/env bash
# Runs the short form of experiments. It fails where one does not run to its end, or where a bound does not hold that is not
# named below: those are known not to be met yet, are said each time, and stay failures of `weirgate lab run` itself.
# usage: scripts/smoke.sh WEIRGATE EXPERIMENT ...
set -euo pipefail
cd "$(dirname "$0")/.."
not_met_yet="edge/lossy_delivery_rate_ratio"
weirgate=$1; shift
for name in "$@"; do
  rm -f "lab-out/$name/result.json"
  "$weirgate" lab run "$name" --quick && continue
  node - "$name" "$not_met_yet" <<'JS'
const [name, known] = process.argv.slice(2);
const { expectations } = JSON.parse(require('node:fs').readFileSync(`lab-out/${name}/result.json`, 'utf8'));
const failed = expectations.filter((e) => !e.holds);
for (const e of failed) console.log(`${name}: ${e.name} is ${e.measured}, bound ${e.bound}`);
process.exit(failed.every((e) => known.split(' ').includes(`${name}/${e.name}`)) ? 0 : 1);
JS
done
