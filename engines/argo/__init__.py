"""Jobs on a cluster: Kubernetes with Argo Workflows. Speaks to the cluster's API with the user's own credentials."""
