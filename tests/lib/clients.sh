# Builds the programs of tests/interop into $CLIENTS. Sourced by areas.

CLIENTS="$RUN/programs-of-interop"
GO_PROGRAMS="go typed operator helm" PYTHON_PROGRAMS="python python-operator"

# build_clients: builds them, once per run. What can't be built is in $CLIENTS/notes, as lines of the area interop.
build_clients() {
  mkdir -p "$CLIENTS"
  once clients build_each_client
}
build_each_client() {
  {
    build_go_programs
    install_python
    install_javascript
    build_kube_rs
  } >"$CLIENTS/notes"
}

build_go_programs() {
  local name package
  for name in $GO_PROGRAMS extension cbor rolling; do
    case $name in
      go) package=. ;;
      extension) package=k8s.io/sample-apiserver ;;
      *) package=./$name ;;
    esac
    if ! wanted "interop/$name"; then :
    elif ! command -v go >/dev/null; then echo "skip interop/$name: there is no Go toolchain"
    elif ! (cd tests/interop/go && go build -o "$CLIENTS/$name" "$package") >"$CLIENTS/$name.log" 2>&1; then
      echo "skip interop/$name: it could not be built: $(tail -1 "$CLIENTS/$name.log")"
    fi
  done
}

install_python() {
  wanted interop/python || return 0
  python3 -m venv "$CLIENTS/venv" >/dev/null 2>&1 &&
    "$CLIENTS/venv/bin/pip" -q install -r tests/interop/requirements.txt >"$CLIENTS/pip.log" 2>&1 && return 0
  echo "skip interop/python: the Python packages could not be installed: $(tail -1 "$CLIENTS/pip.log" 2>/dev/null)"
  rm -rf "$CLIENTS/venv"
}

install_javascript() {
  wanted interop/javascript || return 0
  command -v npm >/dev/null || { echo "skip interop/javascript: there is no npm"; return 0; }
  cp -r tests/interop/javascript "$CLIENTS/javascript"
  (cd "$CLIENTS/javascript" && npm ci --ignore-scripts --no-audit --no-fund) >"$CLIENTS/npm.log" 2>&1 && return 0
  echo "skip interop/javascript: its packages could not be installed: $(grep -m1 'npm error' "$CLIENTS/npm.log")"
  rm -rf "$CLIENTS/javascript"
}

# Its dependencies are fetched first: without a registry this is a skip, and code that doesn't compile is a failure.
build_kube_rs() {
  local manifest=tests/interop/kube-rs/Cargo.toml
  wanted interop/kube-rs || return 0
  if ! cargo fetch --locked --manifest-path "$manifest" >"$CLIENTS/kube-rs.log" 2>&1; then
    echo "skip interop/kube-rs: its crates could not be fetched: $(tail -1 "$CLIENTS/kube-rs.log")"
  elif ! CARGO_TARGET_DIR="$CARGO_TARGET_DIR/kube-rs" cargo build --locked --quiet --manifest-path "$manifest" >"$CLIENTS/kube-rs.log" 2>&1; then
    echo "FAIL interop/kube-rs/build: $(grep -m1 '^error' "$CLIENTS/kube-rs.log")"
  else
    cp "$CARGO_TARGET_DIR/kube-rs/debug/kube-operator" "$CLIENTS/kube-rs"
  fi
}
