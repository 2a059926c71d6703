# Packets that need modules which the kernel of this machine may lack, WireGuard and SCTP, and all packets of policies, in a virtual
# machine with Debian's kernel. It takes some minutes, so that a whole run leaves it out: tests/run vm.
. tests/lib/need.sh
. tests/lib/vm.sh
if [ "$LIST" = yes ]; then
  cargo test --package ironclad-cni --test plugin --locked --quiet -- --list wireguard 2>/dev/null | sed -n 's/: test$//p'
  cargo test --package net-proxy --test kernel --locked --quiet -- --list sctp 2>/dev/null | sed -n 's/: test$//p'
  cargo test --package net-policy --test kernel --locked --quiet -- --list 2>/dev/null | sed -n 's/: test$//p'
  list_checks encrypted_network
  exit
fi
why=$(need qemu-system-x86 busybox-static kmod cpio nftables iproute2 iptables conntrack) || skip_all vm "$why"
kernel=$(vm_kernel) || skip_all vm "$kernel"
cargo test --locked --quiet --no-run --message-format=json --package ironclad-cni --test plugin --package net-proxy \
  --package net-policy --test kernel >"$WORK/programs.json" || exit 1
vm_initramfs "$kernel" "$WORK/initramfs.gz" || exit 1

# A cluster of `ironclad up`, whose pods' packets between nodes are encrypted.
cluster_in_vm() {
  local why
  wanted encrypted || [[ $ONLY == encrypted/* ]] || return 0
  why=$(need containerd runc containernetworking-plugins) && KUBECTL=$(kubectl_path) || { echo "skip encrypted: ${why:-there is no kubectl on this machine}"; return 0; }
  build || return 1
  cat >"$WORK/cluster" <<SCRIPT
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root KUBECTL=$KUBECTL TIMES=1 ONLY=$ONLY
mount --bind "$kernel/lib/modules" /lib/modules && cd "$PWD" && hostname vm || exit 1
modprobe br_netfilter && modprobe wireguard || exit 1
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /var/lib/ironclad && mount -t tmpfs data /var/lib/ironclad
ip link add node0 type bridge && ip address add 198.51.100.10/24 dev node0 && ip link set node0 up && ip route add default via 198.51.100.1
python3 tests/e2e/encrypted_network.py --ironclad "$BIN/ironclad" --data-dir /var/lib/ironclad/vm
SCRIPT
  vm_run "$kernel" "$WORK/initramfs.gz" 1500 "$WORK/cluster"
}
cluster_in_vm || { echo "FAIL vm: the virtual machine of the cluster, or a check in it, failed"; exit 1; }
[[ $ONLY != encrypted* ]] || exit 0
cat >"$WORK/script" <<SCRIPT
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount --bind "$kernel/lib/modules" /lib/modules && cd "$PWD" || exit 1
for module in br_netfilter wireguard sctp; do
  modprobe \$module || { echo "FAIL vm: the kernel can't load \$module"; exit 1; }
done
# A test that is skipped is a failure, but for the test of a kernel that has no WireGuard.
run() { python3 tests/lib/rust_tests.py "$WORK/programs.json" --no-skips "\${@:2}" --only "\$1 --skip kernel_without_wireguard"; }
if [ -n "$ONLY" ]; then
  run "$ONLY" --package ironclad-cni --package net-proxy --package net-policy
  exit
fi
status=0
run wireguard:: --package ironclad-cni --test plugin || status=1
run sctp --package net-proxy --test kernel || status=1
run "" --package net-policy --test kernel || status=1
exit \$status
SCRIPT
vm_run "$kernel" "$WORK/initramfs.gz" 1500 "$WORK/script" || { echo "FAIL vm: the virtual machine or a test in it failed"; exit 1; }
