# The store against the black-box kit that etcd passes.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_kit store; exit; }
# The kit starts clusters without TLS, with etcd's flags.
export KVSTORE_ALLOW_INSECURE_PEERS=true
build || exit 1
[ -x "$SHARED/accept/store" ] || skip_all store "$SHARED/accept/store is not there"
why=$(need etcd-client openssl iproute2) || skip_all store "$why"
[ "$(id -u)" -ne 0 ] || own_network
mapfile -t only < <(only_option); [ "$QUICK" = yes ] && only=(--only kv/)
tests/lib/accept.py --retry 2 --expect tests/accept/store.expected-failures ${STATE:+--state "$STATE"} -- \
  timeout --foreground 900 "$SHARED/accept/store" --server "$BIN/kvstore" "${only[@]}"
