# The API server against the black-box kit that the stock server passes, with the control plane of a simulated cluster.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_kit api; exit; }
build || exit 1
[ -x "$SHARED/accept/api" ] || skip_all api "$SHARED/accept/api is not there"
why=$(need openssl) || skip_all api "$why"
kubectl=$(kubectl_path) || skip_all api "there is no kubectl on this machine"
cluster_up api --simulated || exit 1
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
