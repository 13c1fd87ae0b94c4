#!/bin/sh
# Regenerates, and fails if that changes a generated file. The files are compared
# with themselves, not with a commit, so that other work in progress does not
# matter; in a fresh clone the two are the same. Files that git does not know yet
# count, ignored ones do not.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

snapshot() {
	git ls-files --cached --others --exclude-standard -- '*_gen.go' '*_gen_test.go' docs/schema.md docs/api.txt stack/template.yaml | sort -u |
		while IFS= read -r file; do
			if [ -f "$file" ]; then
				printf '%s %s\n' "$(git hash-object -- "$file")" "$file"
			fi
		done
}

snapshot >"$work/before"
"${GO:-go}" generate ./...
"${GO:-go}" generate -C examples ./...
"${GO:-go}" run ./gen/api
snapshot >"$work/after"

if ! cmp -s "$work/before" "$work/after"; then
	echo 'check-generate: these generated files were stale, and are not any more:' >&2
	sort "$work/before" "$work/after" | uniq -u | cut -d' ' -f2- | sort -u | sed 's/^/  /' >&2
	echo 'Read the difference and commit it with the change of what they are generated from.' >&2
	exit 1
fi
echo "check-generate: $(wc -l <"$work/after" | tr -d ' ') generated files are up to date"
