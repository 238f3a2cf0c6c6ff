"""A real one-node Kubernetes with Argo, for the tests.

    python -m tests.cluster up [--install] [--argo 3.7] [--finalizer] [--images NAME...]
    eval "$(python -m tests.cluster env)"     # kubectl, argo, S3 clients and ffdl now speak to it
    python -m tests.cluster status | shell | load FILE... | kill NAME | start NAME
    python -m tests.cluster down

Programs are built from Go modules into a cache (FFDL_CLUSTER_CACHE, default ~/.cache/ffdl-cluster), a build for each
folder of `builds/`; containerd, runc, CNI plugins and the registry are Debian's. A running cluster is one folder in
that cache, one pair of namespaces (network and mounts) and one cgroup, and nothing else: `down` kills what is in the
cgroup, removes the folder, and says if anything of the machine differs from before `up`. FFDL_CLUSTER_NUMBER (1 to 7)
makes another one beside it. Argo and the tenant are set up by Argo's own manifests and by `argo-config/` as it stands.

`cluster.Cluster` is the same for tests: `kill`, `start`, `kubectl`, `ready`, `tenant`, `user`, `load`, `env`.
"""
