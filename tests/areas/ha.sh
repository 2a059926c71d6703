# A control plane of three machines and three workers, two of them with real containers: network namespaces, and faults under traffic.
# Then three API servers on a real etcd cluster.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks ha etcd_cluster; exit; }
build || exit 1
[ "$(id -u)" -eq 0 ] || skip_all ha "needs root"
why=$(need iproute2 openssl etcd-client) || skip_all ha "$why"
own_network
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all ha "there is no kubectl on this machine"
why=$(need containerd runc containernetworking-plugins nftables conntrack busybox-static) && export REAL_CONTAINERS=yes
TIMES=1 python3 tests/e2e/ha.py --ironclad "$BIN/ironclad" --work "$WORK/ha"
status=$?
if why=$(need etcd-server etcd-client openssl iproute2); then
  TIMES=1 python3 tests/e2e/etcd_cluster.py --bin-dir "$BIN" --work "$WORK/etcd-cluster" || status=1
else
  echo "skip etcd-cluster: $why"
fi
exit "$status"
