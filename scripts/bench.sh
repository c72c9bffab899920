#!/usr/bin/env bash
# The benchmarks: what a limit costs beside its rivals (lab-out/bench-shape), what sealing costs one thread and two
# (lab-out/bench-spray), what a frame costs in the switch (lab-out/bench-switch), how fast fabrics are simulated beside ns-3 (lab-out/fabric-speed), and what one sample, one record, one round and one poll cost. The whole workspace is selected each time,
# so that no library is built twice.
# usage: scripts/bench.sh WEIRGATE
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
for name in bench-shape bench-spray bench-switch fabric-speed; do
  # A bound that is missed here says something of the others, too.
  "$1" lab run "$name" || status=1
done
cargo bench --locked
cargo run --release --locked --example encode
cargo run --release --locked --example poll_cost -- 100000 10
exit $status
