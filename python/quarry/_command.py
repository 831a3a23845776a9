"""The command ``quarry``, as the wheel installs it."""

import signal
import sys

from quarry import _quarry


def main() -> None:
    """Runs the command with the process's arguments, and ends the process with its exit code."""
    # As a program begins: Python catches one signal and ignores another.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _quarry.run_command(sys.argv, _quarry.__file__)
