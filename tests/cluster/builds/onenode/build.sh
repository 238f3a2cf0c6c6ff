# etcd, Kubernetes, kubectl, the pretended devices and the provisioner of volumes, in one program.
go mod tidy
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags="$flags -X $package.gitVersion=v1.34.4 -X $package.gitMajor=1 -X $package.gitMinor=34"
done
CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$OUT/onenode" .
