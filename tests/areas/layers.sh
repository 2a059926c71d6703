# The layer table, the word list for comments, documents and commits, and the syntax of scripts.
cargo test -p layers --locked --quiet 2>&1
for f in $(git ls-files '*.sh' tests/run .ci/run deploy/up deploy/down); do
  bash -n "$f" && echo "ok layers/syntax/$f" || echo "FAIL layers/syntax/$f: bash -n refuses it"
done
