"""`python -m webtune` is the `webtune` command, nothing else."""

from __future__ import annotations

from webtune.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
