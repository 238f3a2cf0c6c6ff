"""The images that jobs on a cluster use: a Containerfile each, and what `ffdl images build` does. Imports no other room."""
