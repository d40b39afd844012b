"""The `tenuto` command. It lies outside the package, whose import takes a moment: Ctrl-C ends that moment, too, without
a traceback. Commands that have something to save take Ctrl-C over while they work."""

import signal


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tenuto.cli import main as command

    command()
