#!/bin/sh
# Runs make targets one after another, and says how long each took. Those in one argument run side by side, and their output comes
# at the end of each. The first argument that fails ends it.
#
# Usage: scripts/check.sh 'TARGET...'...
set -eu
cd "$(dirname "$0")/.."

# Tests that build an image run here, and not in every make test.
export ZLIMIT_EXHAUSTIVE=1

# Tests take memory rather than time.
export GOGC="${GOGC:-400}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { # TARGET, and writes its output and its code
	from=$(date +%s)
	code=0
	"${MAKE:-make}" --no-print-directory "$1" || code=$?
	echo "check: $1 took $(($(date +%s) - from))s"
	echo "$code" >"$work/$1.code"
}

# What make infra installs comes over the network, while processors do other things.
installing=
case " $* " in
*infra*)
	"${MAKE:-make}" --no-print-directory infra-tools >"$work/tools" 2>&1 &
	installing=$!
	;;
esac

began=$(date +%s)
for targets; do
	echo "check: $targets"
	case " $targets " in
	*' infra '*)
		wait "$installing" || true # make infra installs again what is missing, and says why it cannot
		cat "$work/tools"
		;;
	esac
	if [ "${targets#* }" = "$targets" ]; then
		run "$targets"
	else
		started=
		for target in $targets; do
			{
				run "$target" >"$work/$target.out" 2>&1
				cat "$work/$target.out"
			} &
			started="$started $!"
		done
		for each in $started; do
			wait "$each"
		done
	fi
	for target in $targets; do
		code=$(cat "$work/$target.code")
		if [ "$code" != 0 ]; then
			echo "check: $target failed"
			exit "$code"
		fi
	done
done
echo "check: passed in $(($(date +%s) - began))s"
