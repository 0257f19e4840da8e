#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh DIR   Makes DIR/vmlinux and DIR/initrd.gz, what guest.sh boots: Debian's kernel, because
# it has Soft-RoCE, and an initramfs with its modules. The kernel package is fetched and unpacked,
# never installed. Does nothing when DIR is up to date. Exit status 77: it cannot be had here.
set -euo pipefail

modules=(virtio_pci 9pnet_virtio 9p overlay veth crc32_generic rdma_rxe ib_uverbs rdma_ucm)
# Folders of the package that hold them and what they depend on.
folders=(drivers/virtio drivers/net/veth.ko net/9p fs/9p fs/netfs fs/fscache fs/overlayfs
	fs/configfs drivers/infiniband/core drivers/infiniband/sw/rxe net/ipv4/udp_tunnel.ko
	net/ipv6/ip6_udp_tunnel.ko crypto/crc32 arch/x86/crypto/crc32)

skip() {
	echo "skipped: $*"
	exit 77
}

[ "$(uname -m)" = x86_64 ] || skip "the virtual machine is made for x86_64"
for tool in qemu-system-x86_64 busybox cpio modprobe xz apt-get dpkg-deb; do
	command -v $tool >/dev/null || skip "$tool is not installed (./install-deps.sh vm)"
done

script=$(realpath "$0")
mkdir -p "$1"
cd "$1"
stamp=$(sha256sum "$script" | cut -d' ' -f1)
[ "$(cat ready 2>/dev/null || true)" != "$stamp" ] || exit 0
rm -rf ready root kernel

# The kernel that the metapackage stands for; not the cloud flavour, which lacks rdma_rxe.
deb=$(find . -maxdepth 1 -name 'linux-image-*.deb' | head -n 1)
if [ -z "$deb" ]; then
	package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2 }')
	[ -n "$package" ] || skip "apt knows no linux-image-amd64"
	apt-get -qq download "$package" 2>apt.log || skip "$package: $(tail -n 1 apt.log)"
	deb=$(find . -maxdepth 1 -name 'linux-image-*.deb' | head -n 1)
fi

# tar complains about patterns that match nothing (built in, in some kernels); modprobe decides.
patterns=('./boot/vmlinuz-*' '*/modules.builtin*' '*/modules.order')
for folder in "${folders[@]}"; do
	patterns+=("*/kernel/$folder*")
done
mkdir -p kernel root/{bin,modules,dev,proc,sys,host,over,new}
dpkg-deb --fsys-tarfile "$deb" | tar -x -C kernel --wildcards "${patterns[@]}" 2>tar.log || true
version=$(basename kernel/lib/modules/*)
depmod -b kernel "$version"

# qemu enters an uncompressed kernel directly; unpacking it under emulation takes seconds.
image=$(echo kernel/boot/vmlinuz-*)
unpack() { # MAGIC COMMAND...: tries each place of the image where the magic stands
	local magic=$1 offset
	shift
	for offset in $(LC_ALL=C grep -abo -P "$magic" "$image" | cut -d: -f1); do
		tail -c "+$((offset + 1))" "$image" | "$@" >vmlinux 2>/dev/null || true
		if [ "$(head -c 4 vmlinux | tr -d '\0')" = $'\x7fELF' ]; then
			return 0
		fi
	done
	return 1
}
unpack '\xfd7zXZ\x00' xz -dc --single-stream || unpack '\x28\xb5\x2f\xfd' zstd -dc ||
	skip "$image holds no kernel that we can unpack"

# Modules in the order in which they load. rdma_rxe needs crc32_generic but does not say so.
cp "$(command -v busybox)" root/bin/
for module in "${modules[@]}"; do
	modprobe -d kernel -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
	name=$(basename "${file%.xz}")
	case $file in
	*.xz) xz -dc "$file" >"root/modules/$name" ;;
	*) cp "$file" root/modules/ ;;
	esac
	echo "$name"
done >root/modules/order
grep -q rdma_rxe root/modules/order || skip "$deb has no rdma_rxe"

# The guest's / is the host's, read-only, under an overlay in memory; only the share is kept.
cat >root/init <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
PATH=/bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
for module in $(cat /modules/order); do
	insmod "/modules/$module" || echo "guest: no $module"
done
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $options,ro,cache=loose host /host || poweroff -f
mount -t tmpfs none /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work none /new
for dir in dev proc sys; do
	mount -o move /$dir /new/$dir
done
mkdir -p /new/dev/pts /new/dev/shm
for dir in dev/shm run; do
	mount -t tmpfs none /new/$dir
done
mount -t devpts none /new/dev/pts
share=$(sed -n 's/.*kvp\.share=\([^ ]*\).*/\1/p' /new/proc/cmdline)
mkdir -p "/new$share"
mount -t 9p -o $options,rw,cache=none share "/new$share"
ip link set lo up
chroot /new /bin/bash "$share/boot.sh" "$share"
sync
reboot -f
INIT
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz
rm -rf root kernel
echo "$stamp" >ready
echo "built: kernel $version"
