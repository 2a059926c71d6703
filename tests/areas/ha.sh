# A control plane of three machines and a worker: network namespaces with simulated containers, and faults under traffic.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks ha; exit; }
build || exit 1
[ "$(id -u)" -eq 0 ] || skip_all ha "needs root"
why=$(need iproute2 openssl etcd-client) || skip_all ha "$why"
own_network
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all ha "there is no kubectl on this machine"
TIMES=1 python3 tests/e2e/ha.py --ironclad "$BIN/ironclad" --work "$WORK/ha"
