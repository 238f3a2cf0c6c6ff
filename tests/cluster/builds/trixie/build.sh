# Another Debian release than that of our own images, with a Python of its own: its libraries are not ours.
debootstrap --variant=minbase --include=python3,python3-numpy trixie "$OUT/rootfs" > debootstrap.log || { tail debootstrap.log >&2; exit 1; }
rm -rf "$OUT"/rootfs/var/cache/apt/* "$OUT"/rootfs/var/lib/apt/lists/*
