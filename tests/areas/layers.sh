# The layer table, the word list for comments, documents and commits, and the syntax of scripts.
cargo test -p layers --locked --quiet 2>&1
for f in $(git ls-files '*.sh' tests/run .ci/run deploy/up deploy/down); do
  bash -n "$f" && echo "ok layers/syntax/$f" || echo "FAIL layers/syntax/$f: bash -n refuses it"
done
# The diffs of the how-to pages apply to the tree of today. That they compile is not checked.
for page in docs/howto/add-*.md; do
  if why=$(awk '/^```diff/ {inside = 1; next} /^```/ {inside = 0} inside' "$page" | git apply --check - 2>&1); then
    echo "ok layers/howto/$(basename "$page" .md)"
  else
    echo "FAIL layers/howto/$(basename "$page" .md): $why"
  fi
done
