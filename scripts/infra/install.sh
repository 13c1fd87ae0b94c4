#!/bin/sh
# Installs the pinned tools of make infra below a directory, unless they are there. The emulator of arm64 and the browser are
# packages of Debian; those that the system has are taken as they are.
#
# Usage: scripts/infra/install.sh DIR
set -eu
dir=$1
pins=$(cd "$(dirname "$0")" && pwd)

need() {
	command -v "$1" >/dev/null 2>&1 || {
		echo "infra: $1 is not installed; make infra needs $2" >&2
		exit 1
	}
}

stamp=$(cat "$pins/requirements.txt" "$pins/zae-limiter.txt" "$pins/package-lock.json" | cksum)
if [ "$(cat "$dir/stamp" 2>/dev/null || true)" != "$stamp" ]; then
	for tool in python3 npm node; do
		need "$tool" 'python3 with venv, node and npm'
	done
	rm -rf "$dir"
	mkdir -p "$dir"
	install() { # with a Python of its own, since the two need different versions of the SDK of AWS
		python3 -m venv "$dir/$1"
		"$dir/$1/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$pins/$2"
	}
	install venv requirements.txt
	install zae zae-limiter.txt
	cp "$pins/package.json" "$pins/package-lock.json" "$dir/"
	(cd "$dir" && npm ci --silent --no-audit --no-fund)
	echo "$stamp" >"$dir/stamp"
fi

if [ ! -x "$dir/browser" ]; then
	browsers='chromium-headless-shell chromium chromium-browser google-chrome'
	find_browser() {
		for name in $browsers; do
			if command -v "$name" >/dev/null 2>&1; then
				ln -sf "$(command -v "$name")" "$dir/browser"
				return
			fi
		done
		return 1
	}
	find_browser || {
		need apt-get "a Chromium on the PATH, one of $browsers"
		root=
		[ "$(id -u)" = 0 ] || root='sudo -n'
		$root apt-get install -qq --no-install-recommends chromium-headless-shell >/dev/null || {
			$root apt-get update -qq
			$root apt-get install -qq --no-install-recommends chromium-headless-shell >/dev/null
		}
		find_browser
	}
fi

# Only the long forms of the tests run programs for arm64.
[ -n "${ZLIMIT_SOAK:-}" ] || exit 0
[ "$(uname -m)" = aarch64 ] && exit 0
[ -x "$dir/qemu-aarch64" ] && exit 0
rm -rf "$dir/qemu-aarch64" "$dir/debian"
for name in qemu-aarch64-static qemu-aarch64; do
	if command -v "$name" >/dev/null 2>&1; then
		ln -s "$(command -v "$name")" "$dir/qemu-aarch64"
		exit 0
	fi
done
need apt-get 'qemu-aarch64, which runs programs for arm64, on the PATH'
mkdir "$dir/debian"
cd "$dir/debian"
# The lists of packages may be missing, or older than the packages.
apt-get download -qq qemu-user-static || { apt-get update -qq && apt-get download -qq qemu-user-static; }
dpkg-deb -x ./*.deb .
rm ./*.deb
ln -s debian/usr/bin/qemu-aarch64-static "$dir/qemu-aarch64"
