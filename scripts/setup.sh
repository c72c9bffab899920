#!/usr/bin/env bash
# Installs what is needed: `build` what building and running the daemon take, `hdl` what the Verilog takes as well, `services` what
# scripts/services.sh starts and no more, `all` what tests, checks and experiments take, `rivals` other programs that `make prove` measures
# beside ours, which take long to build. Safe to run again: what is there is left alone.
# usage: scripts/setup.sh TOOLS_DIR build|hdl|services|all|rivals
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$1
needs=${2:-}
say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
# What is there for as long as this runs.
made=()
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "${made[@]}"' EXIT
[[ $needs =~ ^(build|hdl|services|all|rivals)$ ]] || fail "say what for: \`build\`, \`hdl\`, \`services\`, \`all\` or \`rivals\`, not \`$needs\`"

# Compiler and linker of the BPF programs and the binary, and what fetches Rust.
packages=(build-essential clang llvm mold pkg-config libelf-dev zlib1g-dev libssl-dev curl ca-certificates)
# What fetches Apache Kafka, Debian's ClickHouse, and what others are libraries of.
services=(curl openssl openjdk-17-jdk-headless maven clickhouse-server python3-venv)
[ "$needs" != services ] || packages=("${services[@]}")
[ "$needs" != rivals ] || packages+=(cmake git)
if [ "$needs" = hdl ] || [ "$needs" = all ]; then
  # Simulators of Verilog, synthesis, and cells for it.
  packages+=(python3 ccache verilator iverilog yosys qflow-tech-osu018)
fi
if [ "$needs" = all ]; then
  # Servers and clients of the experiments and tests; the switch and the simulator that ours are measured beside; the virtual
  # machine that is a tenant of some; the browser; programs that use zlib; what checks metrics; what sets a clock wrong.
  packages+=("${services[@]}" iproute2 nftables iputils-ping procps nginx-light nghttp2-client iperf3 linux-perf strace libisal2
    openvswitch-switch libns3-dev
    qemu-system-x86 busybox-static bash-static chromium
    apache2-bin git libarchive-tools pigz postgresql rsync prometheus faketime)
fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  [ "$(id -u)" = 0 ] || fail "missing Debian packages: ${missing[*]}. Run as root, or: sudo apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  # A server that apt would start is the machine owner's to start: the experiments run their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' > $policy && chmod +x $policy
    made+=("$policy")
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  # Nor are the switch, of which the machine then had a second one, and the database to start with the machine; who had them before
  # keeps them as they were.
  for service in openvswitch-switch postgresql clickhouse-server prometheus; do
    if [[ " ${missing[*]} " == *" $service "* ]]; then
      systemctl disable --quiet $service 2>/dev/null || update-rc.d $service disable ||
        say "$service, which tests need, is left enabled: systemctl disable $service"
    fi
  done
fi

if [ "$needs" != services ]; then
  # Debian 12's own Rust (1.63) and Node.js (18) are too old. What is here and new enough is left alone.
  at_least() { # COMMAND MAJOR.MINOR
    command -v "$1" >/dev/null && printf '%s\n%s\n' "$2" "$("$1" --version | grep -oE '[0-9]+\.[0-9]+' | head -1)" | sort -CV
  }
  rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  if ! at_least cargo "$rust"; then
    say "installing Rust $rust by rustup into ~/.cargo"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
      sh -s -- -q -y --no-modify-path --profile minimal -c clippy -c rustfmt --default-toolchain "$rust" >/dev/null ||
      fail "rustup could not be fetched: install Rust $rust or later (https://rustup.rs), then run this again"
  fi
  if ! at_least node 20.19; then
    say "installing Node.js 20"
    command -v npm >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm >/dev/null
    npm install --silent --no-audit --no-fund --prefix "$tools/node" node@20
    mkdir -p "$tools/bin" && ln -sf "$tools/node/node_modules/node/bin/node" "$tools/bin/node"
  fi

  if [ -f web/package-lock.json ] && ! cmp -s web/package-lock.json web/node_modules/.weirgate-lock; then
    say "installing the page's libraries"
    (cd web && npm ci --silent --no-audit --no-fund && cp package-lock.json node_modules/.weirgate-lock)
  fi
fi

# As their makers build them. One that does not build is not measured.
install_rival() { # PROGRAM PACKAGE VERSION OPTION ...
  local program=$1 package=$2 version=$3
  shift 3
  [[ $("$tools/bin/$program" --version 2>/dev/null) == *" $version" ]] && return
  say "building $package $version"
  cargo install --quiet --root "$tools" --version "$version" "$@" "$package" || say "$package will not be measured"
}
if [ "$needs" = rivals ]; then
  install_rival agg-tunnel aggligator-util 0.18.12 --locked
  install_rival tquic_server tquic_tools 1.6.0
fi
[ "$needs" = services ] || [ "$needs" = all ] || exit 0

# What Debian does not have as it is wanted: whatever POM says, fetched once.
install_jars() { # NAME POM
  local pom=$2 dir=$tools/$1 version output
  version=$(sha256sum < $pom)
  [ -d "$dir/lib" ] && [ "$(cat "$dir/version" 2>/dev/null)" = "$version" ] && return
  say "fetching the jars of $1" >&2
  rm -rf "$dir/new"
  output=$(timeout 600 mvn -q -B -C -f $pom org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$dir/new" 2>&1) ||
    { grep -oPm 1 'ERROR\] \K.*' <<< "$output" || echo "${output:-no answer in 10 minutes}"; return 1; }
  rm -rf "$dir/lib" && mv "$dir/new" "$dir/lib" && printf '%s\n' "$version" > "$dir/version"
}
# ClickHouse: the newest engine as a library for Python, and the server of 25.8, which the library of that time holds whole.
install_chdb() {
  local current=chdb-core==26.9.0 kafka=chdb==3.7.2 dir=$tools/chdb output
  local pip=("$dir/bin/pip" install -q --disable-pip-version-check)
  [ "$(cat "$dir/version" 2>/dev/null)" = "$current $kafka" ] && return
  say "fetching ClickHouse of 26.9 and 25.8" >&2
  rm -rf "$dir"
  output=$({ python3 -m venv "$dir" && timeout 600 "${pip[@]}" $current && timeout 600 "${pip[@]}" --no-deps --target "$dir/kafka" $kafka; } 2>&1) ||
    { tail -n 1 <<< "${output:-no answer in 10 minutes}"; return 1; }
  echo "$current $kafka" > "$dir/version"
}

# What is fetched waits for others, and what is built for the processor: beside each other. What is in a reason's file then is why not.
reasons=$(mktemp -d)
made+=("$reasons")
try() { # REASON COMMAND ...
  local reason=$reasons/$1
  shift
  if "$@" >"$reason"; then rm "$reason"; fi
}
{ try kafka install_jars kafka scripts/services/pom.xml; try zookeeper install_jars zookeeper scripts/services/zookeeper.xml; } &
try chdb install_chdb &
skipped() { # REASON WHAT
  [ ! -e "$reasons/$1" ] || say "tests $2 will be skipped: $(<"$reasons/$1")"
}
all_fetched() {
  wait
  skipped kafka "that talk to Apache Kafka"
  skipped zookeeper "of a replicated ClickHouse"
  skipped chdb "of a current ClickHouse"
}
[ "$needs" = all ] || { all_fetched; exit 0; }

# Tools of `make check` and `make test`, built once for each version into a folder of their own.
install_tool() { # NAME VERSION
  [ -x "$tools/bin/$1" ] && "$tools/bin/$1" --version 2>/dev/null | grep -qxF "$1 $2" && return
  say "building $1 $2"
  # They run for seconds: they need no more of the compiler's time than that.
  CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    cargo install --quiet --locked --root "$tools" --version "$2" "$1"
}
install_tool cargo-fuzz 0.13.2
install_tool cargo-deny 0.20.2
all_fetched

scripts/guest.sh "$(dirname "$tools")/guest" || say "tests that boot a virtual machine will be skipped"
