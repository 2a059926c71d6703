# A virtual machine with another kernel, and the files of this machine. Sourced by areas. No hardware support is needed: QEMU
# translates the code. Files that the machine writes are in its memory.

# vm_kernel: prints a directory with a kernel (boot/vmlinuz-VERSION and lib/modules/VERSION) that has WireGuard; fails with the
# reason. It is $IRONCLAD_TEST_KERNEL, the machine's own, or Debian's package, which is unpacked and not installed.
vm_kernel() {
  local root package
  for root in ${IRONCLAD_TEST_KERNEL:+"$IRONCLAD_TEST_KERNEL"} /; do
    [ -z "$(vm_version "$root")" ] || { echo "$root"; return 0; }
  done
  root="$WORK/kernel"
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ {print $2; exit}')
  mkdir -p "$root/package"
  (cd "$root/package" && apt_get download "$package") >"$WORK/kernel.log" 2>&1 && dpkg-deb -x "$root"/package/*.deb "$root" ||
    { echo "no kernel with WireGuard in /boot, and Debian's linux-image-amd64 can't be downloaded"; return 1; }
  rm -r "$root/package"
  depmod -b "$root" "$(vm_version "$root")"
  echo "$root"
}

# vm_version DIR: prints the newest version of a kernel in a directory that has WireGuard as a module.
vm_version() {
  local path
  for path in $(ls "$1"/boot/vmlinuz-* 2>/dev/null | sort -rV); do
    path=${path##*/vmlinuz-}
    [ -z "$(ls "$1/lib/modules/$path/kernel/drivers/net/wireguard/"wireguard.ko* 2>/dev/null)" ] || { echo "$path"; return; }
  done
}

# vm_initramfs DIR FILE: writes an initramfs that mounts this machine's files, and runs the script of the command line.
vm_initramfs() {
  local version tree="$WORK/initramfs" module number=10
  version=$(vm_version "$1")
  mkdir -p "$tree"/{bin,modules,dev,proc,sys,lower,upper,root}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  for module in $(for name in virtio_pci 9pnet_virtio 9p overlay; do modprobe -d "$1" -S "$version" --show-depends "$name"; done |
    awk '$1 == "insmod" && !seen[$2]++ {print $2}'); do
    cp "$module" "$tree/modules/$number-${module##*/}"
    number=$((number + 1))
  done
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
for module in /modules/*; do $b insmod "$module"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /lower
$b mount -t tmpfs tmpfs /upper
$b mkdir /upper/files /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
$b mount -t devtmpfs dev /root/dev
$b mount -t proc proc /root/proc
$b mount -t sysfs sys /root/sys
$b mount -t tmpfs run /root/run
$b mkdir -p /root/dev/shm /root/lib/modules
$b mount -t tmpfs shm /root/dev/shm
$b ip link set lo up
script=$($b sed -n 's/.*script=\([^ ]*\).*/\1/p' /proc/cmdline)
# The first process itself changes its root, so that the kernel finds modprobe there. Its mount becomes the root of the mount namespace,
# too: a process that enters namespaces of a node would be in the initramfs otherwise.
exec $b switch_root /root /bin/bash -c "/bin/bash $script 2>&1 | cat; echo \"status \${PIPESTATUS[0]}\"; /bin/busybox poweroff -f"
INIT
  chmod +x "$tree/init"
  (cd "$tree" && find . | cpio --create --format newc --quiet | gzip -1) >"$2"
}

# vm_run DIR INITRAMFS SECONDS SCRIPT: runs a script of this machine in a virtual machine with the kernel of DIR, which has its
# modules. Prints its output; returns its status.
vm_run() {
  local version log="$WORK/vm.log"
  version=$(vm_version "$1")
  timeout "$3" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 4096 -nodefaults -display none -serial stdio -no-reboot \
    -kernel "$1/boot/vmlinuz-$version" -initrd "$2" -append "console=ttyS0 quiet panic=-1 mitigations=off script=$4" \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=host,mount_tag=host \
    </dev/null 2>&1 | tr -d '\r' | sed 's/\x1b[^a-zA-Z]*[a-zA-Z]//g' | tee "$log" | grep -v '^status '
  grep -qx 'status 0' "$log"
}
