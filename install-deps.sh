#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install-deps.sh [test|vm]   Installs the Debian packages that the build needs, with "test" also
# those of the tests, with "vm" those of tests/rdma-vm alone, which are among them. Does nothing, and
# needs no root, when they are there.
set -euo pipefail

build=(build-essential cmake ninja-build pkg-config git
	libfabric-dev libprotobuf-c-dev protobuf-c-compiler libuv1-dev libxxhash-dev libssl-dev
	libyaml-dev libjansson-dev libmicrohttpd-dev zlib1g-dev
	liburing-dev libibverbs-dev librdmacm-dev)
test=(libcmocka-dev clang clang-format libclang-rt-14-dev iproute2 procps python3 curl)
# The virtual machine with RDMA devices; on x86_64 only.
vm=(qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 ibverbs-providers rdmacm-utils)

want=("${build[@]}")
if [ "${1:-}" = test ]; then
	. /etc/os-release
	# The compiler runtime that belongs to Debian's default clang; 14 on Debian 12.
	[ "${VERSION_ID:-12}" = 12 ] || test=("${test[@]/libclang-rt-14-dev/libclang-rt-dev}")
	want+=("${test[@]}")
fi
if [ -n "${1:-}" ] && [ "$(uname -m)" = x86_64 ]; then
	want+=("${vm[@]}")
fi

missing=()
for package in "${want[@]}"; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
		missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || {
		echo "install-deps.sh: needs root or sudo to install: ${missing[*]}" >&2
		exit 1
	}
	sudo=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get -qq update
"${sudo[@]}" apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null
