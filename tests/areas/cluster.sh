# A real cluster of two nodes on this machine, and a third one that joins from a second machine: real containers, real nftables, the real kubectl.
. tests/lib/need.sh
. tests/lib/cluster.sh
if [ "$LIST" = yes ]; then
  list_checks kubectl_walkthrough nodes resize join survive purge gateway pod_network foreign_network machines
  list_kit cluster
  exit
fi
build || exit 1
[ "$(id -u)" -eq 0 ] || skip_all cluster "needs root"
why=$(need containerd runc containernetworking-plugins nftables conntrack iproute2 busybox-static curl openssl) || skip_all cluster "$why"
own_network
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all cluster "there is no kubectl on this machine"
python3 tests/e2e/purge.py --note "$WORK/before.json"
cluster_up cluster --nodes 2 || exit 1
python3 tests/e2e/kubectl_walkthrough.py --kubeconfig "$KUBECONFIG" --example deploy/examples/hello.yaml
python3 tests/e2e/nodes.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
python3 tests/e2e/resize.py --kubeconfig "$KUBECONFIG"
python3 tests/e2e/join.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --work "$WORK/joined"
# The checks of survive.py use the example's pods, which the walkthrough made if all of it ran.
[ -z "$ONLY" ] || "$KUBECTL" --kubeconfig "$KUBECONFIG" apply -f deploy/examples/hello.yaml >/dev/null
python3 tests/e2e/survive.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
mapfile -t only < <(only_option)
if [ "$QUICK" = yes ]; then
  echo "skip cluster/kit: left out by --quick"
elif [ -x "$SHARED/accept/cluster" ]; then
  tests/lib/accept.py --retry 2 --expect tests/accept/cluster.expected-failures ${STATE:+--state "$STATE"} -- \
    timeout --foreground 900 "$SHARED/accept/cluster" --kubeconfig "$KUBECONFIG" --image ironclad.local/busybox:1 --kubectl "$KUBECTL" --jobs 6 "${only[@]}"
else
  echo "skip cluster/kit: $SHARED/accept/cluster is not there"
fi
python3 tests/e2e/purge.py --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --before "$WORK/before.json"

# With a pattern, the check that purges the first cluster is left out, as with those below.
cluster_down
# The gateway in pods, behind an address of a pool.
if cluster_up gateway --nodes 2 --load-balancer-pool 198.51.100.200-198.51.100.219; then
  deploy/images --bin-dir "$BIN" --output "$WORK/images" ironclad-gateway >"$WORK/images.log" 2>&1 || cat "$WORK/images.log"
  python3 tests/e2e/gateway.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --images "$WORK/images" --work "$WORK/gateway-files"
  cluster_down
fi

# The cluster's own pod network, in both families and through tunnels in IPv6 alone; each cluster takes the place of the one before.
ip address add 2001:db8:51::10/64 dev node0 nodad
ip -6 route add default via 2001:db8:51::1
pod_network() {
  export NETWORK=$1; shift
  cluster_up "$NETWORK" --nodes 2 --cni ironclad "$@" || return 1
  python3 tests/e2e/pod_network.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
  python3 tests/e2e/purge.py --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --before "$WORK/before.json"
  cluster_down
}
pod_network dual-stack --pod-cidr 10.244.0.0/16,fd00:10:244::/48 --service-cidr 10.96.0.0/16,fd00:10:96::/112 --node-local-dns
pod_network ipv6-tunnel --cni-backend vxlan --pod-cidr fd00:10:244::/48
python3 tests/e2e/foreign_network.py --ironclad "$BIN/ironclad" --work "$WORK/foreign"
python3 tests/e2e/machines.py --ironclad "$BIN/ironclad" --work "$WORK/machines"
