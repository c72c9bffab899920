#!/usr/bin/env bash
# Makes the small virtual machine that tests and experiments boot: Debian's cloud kernel, unpacked and not installed, and an
# initramfs of busybox, bash (for its /dev/udp), iperf3 and the virtio drivers. It runs whatever comes in through its virtio-serial port (see /init below).
# Made once: what is there and made by this very script is left alone.
# usage: scripts/guest.sh DIR
set -euo pipefail
script=$(realpath "$0")
dir=$1
fail() { printf 'guest: %s\n' "$*" >&2; exit 1; }

version=$(sha256sum "$script" | cut -c1-16)
[ -f "$dir/vmlinuz" ] && [ -f "$dir/initramfs" ] && [ "$(cat "$dir/version" 2>/dev/null)" = "$version" ] && exit
for tool in busybox bash-static iperf3 qemu-system-x86_64 dpkg-deb; do
  command -v $tool >/dev/null || fail "$tool is missing: run \`make setup\`"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The meta package's one dependency is today's kernel.
cd "$work"
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -1)
[ -n "$kernel" ] || fail "Debian's list of packages has no linux-image-cloud-amd64: run \`apt-get update\`"
apt-get download -qq "$kernel" 2>/dev/null || fail "cannot download $kernel: run \`apt-get update\`"
dpkg-deb -x "$kernel"*.deb kernel

mkdir -p root/{bin,dev,etc,proc,sys,tmp,modules,lib64}
cp "$(command -v busybox)" root/bin/busybox
for applet in $(busybox --list); do
  [ "$applet" = busybox ] || ln -s busybox "root/bin/$applet"
done
cp "$(command -v bash-static)" root/bin/bash
cp "$(command -v iperf3)" root/bin/
for library in $(ldd "$(command -v iperf3)" | grep -oE '/[^ ]+'); do
  mkdir -p "root$(dirname "$library")"
  cp -L "$library" "root$library"
done
# In the order in which they need each other; the last line's are there for whoever asks.
order=(virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_console failover net_failover virtio_net)
for module in "${order[@]}" sch_fq tcp_bbr sch_netem; do
  file=$(find kernel -name "$module.ko*" | head -1)
  [ -n "$file" ] || fail "$kernel has no module $module"
  cp "$file" root/modules/
done
printf '%s\n' "${order[@]}" > root/modules/order
cat > root/init <<'INIT'
#!/bin/sh
export PATH=/bin HOME=/tmp
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /tmp
while read -r module; do insmod /modules/$module.ko*; done < /modules/order
ip link set lo up
until [ -e /dev/vport*p1 ]; do sleep 0.1; done
port=$(echo /dev/vport*p1)
exec 3<>$port
# A line in is a command; out come its status, the length of its output, and its output.
while :; do
  if read -r line <&3; then
    sh -c "$line" >/tmp/.output 2>&1 </dev/null 3>&-
    printf '%s %s\n' $? "$(wc -c < /tmp/.output)" >&3
    cat /tmp/.output >&3
  else
    sleep 0.1
  fi
done
INIT
chmod +x root/init

mkdir -p "$dir"
rm -f "$dir/version"
cp kernel/boot/vmlinuz-* "$dir/vmlinuz"
(cd root && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) > "$dir/initramfs"
printf '%s\n' "$version" > "$dir/version"
printf 'guest: made %s from %s\n' "$dir" "$kernel"
