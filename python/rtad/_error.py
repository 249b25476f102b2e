"""The exception of a failed command."""


class Error(Exception):
    """A failed command of rtad: its text is that of the command line, with arguments in place of
    flags.

    `exit_code` is the code with which the program would have ended: 1 unexpected, 2 usage, 3 bad
    input over the threshold, 4 verification failed, 5 store or network, 6 another process
    published.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        # Both are arguments, so that a copy from another process has them.
        super().__init__(message, exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0])
