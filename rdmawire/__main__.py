"""``python -m rdmawire``: the command line, also where its script is not on the PATH."""

from rdmawire.cli.main import main

main()
