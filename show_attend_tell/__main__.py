"""Run the console script as ``python -m show_attend_tell``."""

from show_attend_tell.cli.main import main

if __name__ == "__main__":
    main()
