"""``python -m torchtpu``: the command ``torchtpu``."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="python -m torchtpu")
