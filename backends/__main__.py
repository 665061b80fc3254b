"""``minigrad``, also ``python -m backends``: a signal ends it in one line, also while it loads."""

from .launch.interrupts import guarded


def main() -> None:
    """The entry point of the command."""
    guarded(load_and_run)


def load_and_run() -> None:
    from .cli.main import command

    command()


if __name__ == "__main__":
    main()
