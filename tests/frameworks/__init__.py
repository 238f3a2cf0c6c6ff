"""Training jobs of real frameworks, of two processes each that exchange gradients: `python -m tests.frameworks`."""
