# shellcheck shell=bash
# Sourced by the tests of libweirgate_z.so, whose one argument is the library: what they share. Of a library for another machine, CC
# compiles programs, RUN is what runs them, and ZLIB is the libz that it stands beside.
set -euo pipefail
if [ $# != 1 ] || [ ! -r "$1" ]; then
  printf 'usage: %s LIBWEIRGATE_Z.so\n' "$0" >&2
  exit 2
fi
work=$(mktemp -d /tmp/weirgate-libz.XXXXXX)
chmod 755 "$work"
mkdir -m 1777 "$work/bindings"
# Where users who are not root find it, too.
lib=$work/libweirgate_z.so
install -m 755 "$1" "$lib"
read -ra compiler <<<"${CC:-cc}"
read -ra run <<<"${RUN:-}"
passed=0
failed=0
started=()

clean() {
  if ((${#started[@]})); then
    kill "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap clean EXIT

# Runs a command, which fails where any of its own does, and says whether it passed; what it wrote is shown where it has not.
check() { # NAME COMMAND ...
  local name=$1 rc; shift
  set +e
  (set -e; "$@") >"$work/log" 2>&1
  rc=$?
  set -e
  if [ $rc = 0 ]; then
    passed=$((passed + 1)); printf 'ok      %s\n' "$name"
  else
    failed=$((failed + 1)); printf 'FAILED  %s (exit %d)\n' "$name" $rc
    tail -n 25 "$work/log" | sed 's/^/        /'
  fi
}

# Ends a script, which has failed where a check has.
finish() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" = 0 ]
}

cc() { command "${compiler[@]}" "$@"; }

# Before a command: our library in place of the system's. The dynamic linker writes down which symbol of whose it binds to what.
preload=(env "LD_PRELOAD=$lib" LD_DEBUG=bindings "LD_DEBUG_OUTPUT=$work/bindings/of")
ours() { "${preload[@]}" "${run[@]}" "$@"; }

# Whether what ran by `ours` since the last look has had these of our functions, and no function of another libz.
had() { # SYMBOL ...
  local symbol bound=$work/bound
  rm -rf "$bound"
  mv "$work/bindings" "$bound"
  mkdir -m 1777 "$work/bindings"
  for symbol; do
    grep -qrF "to $lib [0]: normal symbol \`$symbol'" "$bound" || { echo "nobody has had our $symbol"; return 1; }
  done
  # The other libz may be there, and have its own functions.
  if grep -rhE 'to [^ ]*/libz\.so[^ ]* \[0\]: normal symbol' "$bound" | grep -v 'binding file [^ ]*/libz\.so' >"$work/stock"; then
    head -n 3 "$work/stock"
    return 1
  fi
}

# Waits until a command succeeds, for a minute at most.
await() {
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "waited in vain for: $*"
  return 1
}

# Data: a tree of text, a file that cannot be compressed and an empty one.
data() {
  mkdir -p "$work/data"
  cp -r /usr/include/linux "$work/data/text"
  head -c 2000000 /dev/urandom >"$work/data/random"
  : >"$work/data/empty"
}

# So many bytes of the text.
text_of() { # LENGTH
  find "$work/data/text" -type f -print0 | LC_ALL=C sort -z | xargs -0 cat 2>/dev/null | head -c "$1" || true
}
