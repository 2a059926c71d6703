# A real cluster of two nodes on this machine, and a third one that joins from a second machine: real containers, real nftables, the real kubectl.
. tests/lib/need.sh
. tests/lib/cluster.sh
if [ "$LIST" = yes ]; then
  list_checks kubectl_walkthrough nodes join survive purge
  list_kit cluster
  exit
fi
build || exit 1
[ "$(id -u)" -eq 0 ] || skip_all cluster "needs root"
why=$(need containerd runc containernetworking-plugins nftables conntrack iproute2 busybox-static curl) || skip_all cluster "$why"
own_network
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all cluster "there is no kubectl on this machine"
python3 tests/e2e/purge.py --note "$WORK/before.json"
cluster_up cluster --nodes 2 || exit 1
python3 tests/e2e/kubectl_walkthrough.py --kubeconfig "$KUBECONFIG" --example deploy/examples/hello.yaml
python3 tests/e2e/nodes.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
python3 tests/e2e/join.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --work "$WORK/joined"
# The checks of survive.py use the example's pods, which the walkthrough made if all of it ran.
[ -z "$ONLY" ] || "$KUBECTL" --kubeconfig "$KUBECONFIG" apply -f deploy/examples/hello.yaml >/dev/null
python3 tests/e2e/survive.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
mapfile -t only < <(only_option)
if [ "$QUICK" = yes ]; then
  echo "skip cluster/kit: left out by --quick"
elif [ -x "$SHARED/accept/cluster" ]; then
  tests/lib/accept.py --retry 2 --expect tests/accept/cluster.expected-failures ${STATE:+--state "$STATE"} -- \
    timeout 900 "$SHARED/accept/cluster" --kubeconfig "$KUBECONFIG" --image ironclad.local/busybox:1 --kubectl "$KUBECTL" --jobs 6 "${only[@]}"
else
  echo "skip cluster/kit: $SHARED/accept/cluster is not there"
fi
python3 tests/e2e/purge.py --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --before "$WORK/before.json"
