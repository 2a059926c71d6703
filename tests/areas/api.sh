# The API server against the black-box kit that the stock server passes, with the control plane of a simulated cluster.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { echo api/version-needs-credentials; list_kit api; exit; }
build || exit 1
[ -x "$SHARED/accept/api" ] || skip_all api "$SHARED/accept/api is not there"
why=$(need openssl iproute2) || skip_all api "$why"
[ "$(id -u)" -ne 0 ] || own_network
kubectl=$(kubectl_path) || skip_all api "there is no kubectl on this machine"
cluster_up api --simulated || exit 1

# The kit tests the API server with the stock default, in which requests without credentials may read /version. `ironclad up` does
# not open that path, which is checked first. Then the configuration of this cluster's administrator opens it.
anonymous_version() {
  python3 -c 'import ssl, sys, urllib.error, urllib.request
try: print(urllib.request.urlopen(sys.argv[1] + "/version", context=ssl.create_default_context(cafile=sys.argv[2])).status)
except urllib.error.HTTPError as error: print(error.code)' \
    "$("$kubectl" config view --output 'jsonpath={.clusters[0].cluster.server}')" "$CLUSTER/pki/ca.crt" 2>&1 | tail -1
}
open_version() {
  local deadline=$((SECONDS + 120)) old
  python3 -c 'import json, sys
with open(sys.argv[1]) as file: tree = json.load(file)
tree["anonymous"]["conditions"].append({"path": "/version"})
with open(sys.argv[1], "w") as file: json.dump(tree, file)' "$CLUSTER/config/authentication.yaml" || return 1
  # The conditions are read at the start of the server. The supervisor starts it again.
  old=$(component_pid kube-apiserver) && kill "$old" || return 1
  until [ "$(component_pid kube-apiserver 2>/dev/null)" != "$old" ] && [ "$(anonymous_version)" = 200 ] &&
    "$kubectl" get --raw /readyz >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.5
  done
}
answer=$(anonymous_version)
if [ "$answer" = 401 ]; then echo "ok api/version-needs-credentials"
else echo "FAIL api/version-needs-credentials: $answer"
fi
open_version || { echo "FAIL api/open-version: $(anonymous_version)"; exit 1; }

# The kit needs a server with controllers, but without a scheduler or kubelet, which would bind or run its pods.
paused kube-scheduler kubelet

# The administrator of the kit's recording is the user "admin": create a kubeconfig for it, with a certificate of this cluster.
named_admin() {
  local key="$WORK/named.key" crt="$WORK/named.crt"
  openssl req -new -newkey rsa:2048 -nodes -keyout "$key" -subj /O=system:masters/CN=admin -out "$WORK/named.csr" &&
    openssl x509 -req -in "$WORK/named.csr" -CA "$CLUSTER/pki/ca.crt" -CAkey "$CLUSTER/pki/ca.key" -days 1 -out "$crt" \
      -set_serial 1 -extfile <(echo extendedKeyUsage=clientAuth) &&
    cp "$KUBECONFIG" "$WORK/named.kubeconfig" &&
    "$kubectl" --kubeconfig "$WORK/named.kubeconfig" config set-credentials kubernetes-admin \
      --client-certificate="$crt" --client-key="$key" --embed-certs=true
}
named_admin >"$WORK/named.log" 2>&1 || { echo "FAIL api/named-admin: $(tail -1 "$WORK/named.log")"; exit 1; }

groups=(discovery objects wire patches apply concurrency watches deletion validation defaults services authn authz bootstrap
  admission podsecurity webhooks certificates hostile flowcontrol crds crd_rules policies)
if [ -n "$ONLY" ]; then
  groups=()
  tests/lib/accept.py --expect tests/accept/api.expected-failures -- \
    "$SHARED/accept/api" --kubeconfig "$WORK/named.kubeconfig" --kubectl "$kubectl" --only "$ONLY"
elif [ "$QUICK" = yes ]; then
  groups=(objects hostile)
fi
for group in ${groups[@]+"${groups[@]}"}; do
  tests/lib/accept.py --expect tests/accept/api.expected-failures ${STATE:+--state "$STATE"} -- \
    "$SHARED/accept/api" --kubeconfig "$WORK/named.kubeconfig" --kubectl "$kubectl" --only "$group."
done
