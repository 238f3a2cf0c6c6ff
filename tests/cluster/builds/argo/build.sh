# Argo's controller, executor and command (which is its API server too), its CRDs, and an S3 server.
module=github.com/argoproj/argo-workflows/v4
go mod tidy
go mod vendor -e  # despite the absent UI
# What the module lacks: a file that is a symbolic link upstream, and the built UI.
cp "vendor/$module/workflow/executor/osspecific/signal_darwin.go" "vendor/$module/workflow/executor/osspecific/signal_linux.go"
mkdir -p "vendor/$module/ui/dist/app"
echo '<p>This server was built without its user interface.' > "vendor/$module/ui/dist/app/index.html"
CGO_ENABLED=0 go build -mod=vendor -trimpath -ldflags "-s -w -X $module.version=v4.0.2" -o "$OUT/" tool
cp -r "$(go list -mod=mod -m -f '{{.Dir}}' $module)/manifests" "$OUT/manifests"
chmod -R u+w "$OUT/manifests"
