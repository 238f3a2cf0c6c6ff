"""Where a compiled Workflow runs: `local` (this machine, the embedded default) and later `argo` (a cluster).

Imports `workflows` and `learner.contract`; long-running programs here import neither hera nor pydantic nor kubernetes.
"""
