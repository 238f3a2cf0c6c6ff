"""A training job -> an Argo Workflow. Pure: no network, no files, no clock, no cluster.

Imports `learner.contract` only.
"""
