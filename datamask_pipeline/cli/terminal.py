"""Where the commands print: a console that shows text as it is. Knows no command."""

from rich.console import Console


def plain_console(*, stderr: bool = False) -> Console:
    """A console that takes nothing in a text for an emoji's code, markup or a value to colour: ids hold all of these.

    Args:
        stderr: Whether it prints to standard error.
    """
    return Console(stderr=stderr, emoji=False, markup=False, highlight=False)
