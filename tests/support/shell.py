"""Run the command line in this process."""

from show_attend_tell.cli.main import main


def exit_code(*arguments: object) -> int:
    """Return the exit status of ``show-attend-tell ARGUMENTS``."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code or 0
    return 0
