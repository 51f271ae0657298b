"""The command `pods` from its first instant on: signals end it in one line while the rest is still being imported."""

from podsrl.lib.imports import load
from podsrl.lib.signals import leave_at_once, leave_on_signal


def main() -> None:
    """Run the command line."""
    try:
        leave_on_signal()
        load("podsrl.cli.main")
        from podsrl.cli.main import main
        from podsrl.scale.launch import leaving_at_once

        with leaving_at_once():
            main()
    except KeyboardInterrupt:
        leave_at_once()


if __name__ == "__main__":
    main()
