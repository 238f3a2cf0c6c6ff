module tools

go 1.26

tool (
	github.com/argoproj/argo-workflows/v3/cmd/argo
	github.com/argoproj/argo-workflows/v3/cmd/argoexec
	github.com/argoproj/argo-workflows/v3/cmd/workflow-controller
)

require github.com/argoproj/argo-workflows/v3 v3.7.6
