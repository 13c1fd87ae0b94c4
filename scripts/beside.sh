#!/bin/sh
# Compares the hot path of this tree with that of a pinned commit, which had token buckets alone: the benchmarks of both
# run in turns, and the fastest run of each counts. With valgrind, it also counts instructions, which a busy machine does not
# change. `make bench` runs it.
#
# Usage: scripts/beside.sh [COMMIT [TURNS]]
set -eu
cd "$(dirname "$0")/.."
commit=${1:-79bf295}
turns=${2:-9}
git cat-file -e "$commit^{commit}" 2>/dev/null || {
	echo "beside: this clone has no commit $commit: skipped" >&2
	exit 0
}
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/tree" >/dev/null 2>&1; rm -rf "$dir"' EXIT
git worktree add --quiet --detach "$dir/tree" "$commit"
(cd "$dir/tree" && "${GO:-go}" test -c -o "$dir/then.test" ./zlimit)
"${GO:-go}" test -c -o "$dir/now.test" ./zlimit
cd zlimit
i=0
while [ "$i" -lt "$turns" ]; do
	for side in then now; do
		"$dir/$side.test" -test.run '^$' -test.bench '^Benchmark(Memory|Warm)$' -test.benchmem -test.benchtime 3000x |
			sed -n "s/^Benchmark/$side /p"
	done
	i=$((i + 1))
done | awk '
	function least(key, value) { if (!(key in best) || value < best[key]) best[key] = value }
	{ for (i = 4; i < NF; i += 2) least($1 " " $2 " " $(i + 1), $i + 0) }
	END {
		for (key in best) {
			split(key, part, " ")
			sub(/-[0-9]+$/, "", part[2])
			figure[part[1] " " part[2] " " part[3]] = best[key]
		}
		printf "%-34s %10s %10s\n", "", "then", "now"
		printf "%-34s %10d %10d   %.2f times\n", "memory, ns", figure["then Memory ns/op"], figure["now Memory ns/op"], figure["now Memory ns/op"] / figure["then Memory ns/op"]
		printf "%-34s %10d %10d\n", "memory, bytes", figure["then Memory B/op"], figure["now Memory B/op"]
		printf "%-34s %10.2f %10.2f\n", "warm, of the bare SDK call", figure["then Warm x-sdk"], figure["now Warm x-sdk"]
	}'
command -v valgrind >/dev/null || exit 0
# instructions SIDE TIMES prints the instructions of a run, without garbage collection.
instructions() {
	GOGC=off GOMAXPROCS=1 valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
		"$dir/$1.test" -test.run '^$' -test.bench '^BenchmarkMemory$' -test.benchtime "$2x" 2>&1 >/dev/null |
		sed -n 's/.*I *refs: *//p' | tr -d ,
}
for side in then now; do
	echo $((($(instructions $side 22000) - $(instructions $side 2000)) / 20000))
done | paste -s - | awk '{ printf "%-34s %10d %10d   %.2f times\n", "memory, instructions", $1, $2, $2 / $1 }'
