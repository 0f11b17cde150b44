"""`python -m flows <stage> [<dataset>]`: run a stage, in a fork of the pipeline's warm process if there is one."""

from __future__ import annotations

import sys

from flows.warm import hand_over, run_here


def main() -> None:
    if len(sys.argv) < 2 or not sys.argv[1].isidentifier():
        sys.exit("usage: python -m flows <stage> [<dataset>]")
    module, arguments = f"flows.{sys.argv[1]}", sys.argv[2:]
    code = hand_over(module, arguments)
    if code is not None:
        sys.exit(code)
    run_here(module, arguments)


if __name__ == "__main__":
    main()
