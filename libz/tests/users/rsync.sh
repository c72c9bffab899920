#!/usr/bin/env bash
# rsync with compression on libweirgate_z.so, to itself and to one on the system's zlib: whole files and changes. By `zlib` it deflates
# what the other side has already, and throws that away: what comes after it must refer to it in the same way.
# usage: libz/tests/users/rsync.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(rsync --version | head -n 1)" "$1"
data
# In place of a shell on another machine.
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$work/here"
chmod +x "$work/here"

change() {
  cp -r "$work/data" "$1"
  find "$1/text" -name 'a*.h' -exec sed -i '5i a line that is new' {} +
  find "$1/text" -name 'n*.h' -exec sed -i '1d' {} +
  head -c 1000000 "$work/data/random" >"$1/random"
  text_of 100000 >>"$1/random"
  tail -c 1000000 "$work/data/random" >>"$1/random"
}

# Sends a tree, then a changed one over it.
send() { # CHOICE LEVEL SENDER RECEIVER
  local options=(-a --no-whole-file --ignore-times --compress --compress-choice="$1" --compress-level="$2" -e "$work/here") run=() path=rsync
  [ "$3" = ours ] && run=("${preload[@]}")
  if [ "$4" = ours ]; then path="${preload[*]} rsync"; else path='env -u LD_PRELOAD -u LD_DEBUG rsync'; fi
  rm -rf "$work/there" "$work/changed"
  "${run[@]}" rsync "${options[@]}" --debug=NSTR2 --rsync-path "$path" "$work/data/" "local:$work/there" | grep -i "compress: $1 "
  diff -r "$work/data" "$work/there"
  change "$work/changed"
  "${run[@]}" rsync "${options[@]}" --rsync-path "$path" "$work/changed/" "local:$work/there"
  diff -r "$work/changed" "$work/there"
  if [ "$3" = ours ]; then had deflate deflateInit2_; else had inflate inflateInit2_; fi
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf 'use chroot = no\npid file = %s\n[data]\npath = %s\nread only = yes\nuid = root\ngid = root\n' "$work/rsyncd.pid" "$work/data" >"$work/rsyncd.conf"
"${preload[@]}" rsync --daemon --no-detach --address 127.0.0.1 --port "$port" --config "$work/rsyncd.conf" &
started+=("$!")
served() {
  await rsync "rsync://127.0.0.1:$port/"
  for choice in zlib zlibx; do
    rm -rf "$work/there"
    ours rsync -a -z --zc=$choice "rsync://127.0.0.1:$port/data/" "$work/there"
    diff -r "$work/data" "$work/there"
  done
  had deflate inflate
}

for choice in zlibx zlib; do
  for level in 1 6 9; do
    check "$choice, level $level" send $choice $level ours ours
  done
  check "$choice, to the system's" send $choice 6 ours system
  check "$choice, from the system's" send $choice 6 system ours
done
check 'a daemon' served
finish
