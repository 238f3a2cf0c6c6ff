"""The `ffdl` command, a file a verb. Imports `engines` and `workflows` lazily: `--help` stays fast."""


def main() -> None:
    """Runs `ffdl` with this process's arguments and exits with its code."""
    import sys

    try:
        from .app import run

        code = run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
