# All binaries on loopback with the simulated runtime, on free ports: needs no root.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks simulated etcd; exit; }
build || exit 1
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all simulated "there is no kubectl on this machine"
cluster_up simulated --simulated || exit 1
python3 tests/e2e/simulated.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
why=$(need etcd-server etcd-client curl iproute2) || { echo "skip etcd: $why"; exit 0; }
cluster_down
cluster_up borrowed --simulated || exit 1
python3 tests/e2e/etcd.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
