#!/bin/sh
# Installs the pinned tools of make infra below a directory, unless they are there.
#
# Usage: scripts/infra/install.sh DIR
set -eu
dir=$1
pins=$(cd "$(dirname "$0")" && pwd)
stamp=$(cat "$pins/requirements.txt" "$pins/package-lock.json" | cksum)
[ "$(cat "$dir/stamp" 2>/dev/null || true)" = "$stamp" ] && exit 0

for tool in python3 npm node; do
	command -v "$tool" >/dev/null 2>&1 || {
		echo "infra: $tool is not installed; make infra needs python3 with venv, node and npm" >&2
		exit 1
	}
done
rm -rf "$dir"
mkdir -p "$dir"
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$pins/requirements.txt"
cp "$pins/package.json" "$pins/package-lock.json" "$dir/"
(cd "$dir" && npm ci --silent --no-audit --no-fund)
echo "$stamp" >"$dir/stamp"
