"""`python -m millstream`: the command line, where its script is not on the path."""

from millstream.cli.main import main

if __name__ == "__main__":
    main()
