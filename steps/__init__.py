"""What runs inside the pods. Imports `learner` only; no hera, no pydantic, no kubernetes at start."""
