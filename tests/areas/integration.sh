# The whole product in one process: kvstore, the API server, controllers, scheduler, and kubelets on the simulated runtime, over
# TLS and HTTP/2. It needs nothing beside the clone, neither root nor kubectl nor the kits.
. tests/lib/need.sh
if [ "$LIST" = yes ]; then
  list_cargo --package integration-tests
  exit
fi
rust_tests --package integration-tests
