# The base of all images: Debian with Python.
debootstrap --variant=minbase --include=ca-certificates,python3 bookworm "$OUT/rootfs" > debootstrap.log || { tail debootstrap.log >&2; exit 1; }
rm -rf "$OUT"/rootfs/var/cache/apt/archives/*.deb "$OUT"/rootfs/var/lib/apt/lists/* "$OUT"/rootfs/var/log/*.log
