#!/bin/sh
# Boots a guest with N possible CPUs: boot.sh VMLINUX MODULES BUSYBOX CPUS,maxcpus=N [PARAMETER...] > CONSOLE
#
# MODULES has loop.ko and virtio's; the machine is pseries. For x86-64 take qemu-system-x86_64 -M q35 and ttyS0.
set -e
kernel=$1 modules=$2 busybox=$3 cpus=$4
shift 4
work=$(mktemp -d)
mkdir -p "$work/root/bin" "$work/root/proc" "$work/root/sys" "$work/root/dev"
cp "$busybox" "$work/root/bin/busybox"
for program in sh mount cat sleep echo poweroff ls insmod setsid; do
  ln -s busybox "$work/root/bin/$program"
done
cp -r "$modules" "$work/root/m"
cp "$(dirname "$0")/init" "$work/root/init"
(cd "$work/root" && find . | cpio -o -H newc --quiet > ../initramfs)
truncate -s 64M "$work/disk"
qemu-system-ppc64 -M pseries -cpu POWER9 -vga none -accel tcg -m 4G -smp "$cpus" -nographic -no-reboot -net none \
  -drive "file=$work/disk,format=raw,if=virtio" -kernel "$kernel" -initrd "$work/initramfs" \
  -append "console=hvc0 panic=-1 quiet $*" < /dev/null
