"""``python -m show_attend_tell``: the console script without its installation."""

from show_attend_tell.cli.main import main

if __name__ == "__main__":
    main()
