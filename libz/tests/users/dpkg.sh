#!/usr/bin/env bash
# dpkg-deb, which reads a package's gzip members to their end and only there asks for an error, on libweirgate_z.so.
# usage: libz/tests/users/dpkg.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(dpkg-deb --version | head -n 1)" "$1"
data

there_and_back() {
  cd "$work"
  mkdir -p tree/DEBIAN
  cp -r data tree/
  printf 'Package: weir\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: data\n' >tree/DEBIAN/control
  ours dpkg-deb -Zgzip --build tree whole.deb
  ar t whole.deb | grep -x 'data.tar.gz'
  rm -rf there
  ours dpkg-deb -x whole.deb there
  diff -r data there/data
  had gzdopen gzwrite gzread gzclose
}

# The last member's last bytes are missing, and ar's header says so: what is left is a whole archive of half a member.
cut() { # BYTES
  cd "$work"
  local len
  rm -rf members && mkdir members
  (cd members && ar x ../whole.deb)
  len=$(stat -c %s members/data.tar.gz)
  truncate -s $((len - $1)) members/data.tar.gz
  rm -f cut.deb
  (cd members && ar rc ../cut.deb debian-binary control.tar.* data.tar.gz)
  for what in --fsys-tarfile --contents; do
    fails dpkg-deb $what cut.deb
  done
  rm -rf there
  fails dpkg-deb -x cut.deb there
}

# What fails by the system's zlib fails by ours, with the same code.
fails() { # COMMAND ...
  local system=0 ours=0
  "$@" >/dev/null 2>system.said || system=$?
  ours "$@" >/dev/null 2>ours.said || ours=$?
  cat system.said ours.said
  [ $system != 0 ] && [ $ours = $system ]
}

check 'a package there and back' there_and_back
for bytes in 1 5 1000 1000000; do
  check "a package whose data is cut by $bytes bytes is refused" cut $bytes
done
finish
