#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# guest.sh DIR COMMAND   Runs a bash command line as root in a virtual machine with two Soft-RoCE
# devices, rxe0 (10.0.0.1) and rxe1 (10.0.0.2), on the two ends of one wire. DIR is build.sh's.
#
# The guest sees this machine's files; what it writes is thrown away, except under $KVP_VM_SHARE
# (a new folder there, DIR/share by default). The command starts in the caller's folder, its output
# is ours, its status too. 124: it took longer than KVP_VM_TIMEOUT (s); 125: the guest was not up
# after KVP_VM_BOOT (s) or died. Always software emulation: where /dev/kvm opens, it may still not
# run this kernel.
set -euo pipefail

dir=$(realpath "$1")
shift
share=${KVP_VM_SHARE:-$dir/share}
mkdir -p "$share"
rm -f "$share/status" "$share/up"

# Without accept_local the kernel drops packets that come in from one of its own addresses.
cat >"$share/boot.sh" <<'BOOT'
share=$1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ip link add veth0 mtu 9000 type veth peer name veth1 mtu 9000
for n in 0 1; do
	ip addr add 10.0.0.$((n + 1))/24 dev veth$n
done
for dev in all veth0 veth1; do
	echo 0 >/proc/sys/net/ipv4/conf/$dev/rp_filter
	echo 1 >/proc/sys/net/ipv4/conf/$dev/accept_local
done
for n in 0 1; do
	ip link set veth$n up
	rdma link add rxe$n type rxe netdev veth$n
done
ulimit -l unlimited
touch "$share/up"
echo "guest: up after $(cut -d' ' -f1 /proc/uptime) s"
. "$share/environment"
(eval "$(cat "$share/command")") </dev/null
echo $? >"$share/status"
BOOT
printf '%s\n' "$*" >"$share/command"
{
	printf 'cd %q\n' "$PWD"
	# What tests are told by their build and by their caller.
	for name in ${!KVP_TEST_*}; do
		printf 'export %s=%q\n' "$name" "${!name}"
	done
} >"$share/environment"

mount=security_model=none,multidevs=remap
kernel="console=ttyS0 quiet loglevel=3 oops=panic panic=-1 mitigations=off audit=0 apparmor=0"
kernel+=" rcupdate.rcu_expedited=1 cryptomgr.notests nowatchdog no_timer_check 8250.nr_uarts=1"
kernel+=" hugepages=${KVP_VM_HUGEPAGES:-0} kvp.share=$share"
machine=(-machine q35,usb=off,smbus=off,sata=off -accel tcg,thread=multi,tb-size=512
	-cpu max,la57=off -smp 2 -m "${KVP_VM_MEMORY:-2G}" -nodefaults -no-user-config
	-display none -no-reboot -serial stdio -device virtio-rng-pci
	-fsdev "local,id=host,path=/,readonly=on,$mount"
	-device virtio-9p-pci,fsdev=host,mount_tag=host
	-fsdev "local,id=share,path=$share,$mount"
	-device virtio-9p-pci,fsdev=share,mount_tag=share
	-kernel "$dir/vmlinux" -initrd "$dir/initrd.gz" -append "$kernel")

# The console's output goes through tr: a serial line ends in carriage returns.
exec 3> >(exec tr -d '\r')
timeout -k 5 "${KVP_VM_TIMEOUT:-200}" qemu-system-x86_64 "${machine[@]}" </dev/null >&3 &
qemu=$!
trap 'kill $qemu 2>/dev/null' EXIT
for ((tick = 0; tick < 5 * ${KVP_VM_BOOT:-40}; tick++)); do
	if [ -e "$share/up" ] || ! kill -0 $qemu 2>/dev/null; then
		break
	fi
	sleep 0.2
done
if [ ! -e "$share/up" ]; then
	echo "guest: not up after ${KVP_VM_BOOT:-40} s"
	exit 125
fi
status=0
wait $qemu || status=$?
trap - EXIT
if [ $status = 124 ] || [ $status = 137 ]; then
	exit 124
fi
exit "$(cat "$share/status" 2>/dev/null || echo 125)"
