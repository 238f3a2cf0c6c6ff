"""Files for kustomize: what a cluster needs so that ffdl's Workflows run. `ffdl doctor` compares clusters with them."""
