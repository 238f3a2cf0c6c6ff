"""The embedded engine: runs a compiled Workflow on this machine, with Argo's own status format, state in files."""
