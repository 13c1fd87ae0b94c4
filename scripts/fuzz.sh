#!/bin/sh
# Runs every fuzz target of the modules for a while, one after another: go test
# takes one target at a time. A failing input is left in the package's testdata.
#
# Usage: scripts/fuzz.sh [FUZZTIME]   a duration or a count such as 1000x; 5s if not given
set -eu
cd "$(dirname "$0")/.."
fuzztime=${1:-5s}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "DIRECTORY TARGET" lines.
git ls-files --cached --others --exclude-standard -- '*_test.go' ':!tools' |
	while IFS= read -r file; do
		[ -f "$file" ] || continue
		sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|./$(dirname "$file") \1|p" "$file"
	done | sort >"$work/targets"

fuzz() {
	"${GO:-go}" test -C "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" -fuzzminimizetime 10x . </dev/null >"$work/out" 2>&1
}

failed=0
while read -r directory target; do
	if fuzz "$directory" "$target" ||
		# The end of the fuzzing time can cut a worker short, which go test then
		# reports as a failure without an input. That is not one.
		{ grep -q 'context deadline exceeded' "$work/out" &&
			! grep -q 'Failing input written' "$work/out" &&
			fuzz "$directory" "$target"; }; then
		printf 'fuzz: %s %s: %s\n' "$directory" "$target" "$(grep '^fuzz: elapsed' "$work/out" | tail -n 1 | sed 's/^fuzz: //')"
	else
		printf 'fuzz: %s %s failed:\n' "$directory" "$target" >&2
		cat "$work/out" >&2
		failed=1
	fi
done <"$work/targets"
[ "$failed" -eq 0 ] || exit 1
echo "fuzz: $(wc -l <"$work/targets" | tr -d ' ') targets, $fuzztime each, no failure"
