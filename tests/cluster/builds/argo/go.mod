module tools

go 1.26

tool (
	github.com/argoproj/argo-workflows/v4/cmd/argo
	github.com/argoproj/argo-workflows/v4/cmd/argoexec
	github.com/argoproj/argo-workflows/v4/cmd/workflow-controller
	github.com/versity/versitygw/cmd/versitygw
)

require (
	github.com/argoproj/argo-workflows/v4 v4.0.2
	github.com/versity/versitygw v1.8.0
)
