"""The images that jobs on a cluster use: a Containerfile each, and what builds them. Imports no other room."""
