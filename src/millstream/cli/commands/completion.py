"""`millstream completion`: what a shell needs to complete commands and flags."""

import click
from click.shell_completion import get_completion_class

from millstream.cli.render import Answer, answered

_INSTALL = {
    "bash": 'eval "$(millstream completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(millstream completion zsh)"  # in ~/.zshrc, behind compinit',
    "fish": "millstream completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@answered
def completion(shell: str) -> Answer:
    """Print the script that lets SHELL complete millstream's commands and flags.

    \b
    bash:  eval "$(millstream completion bash)"      in ~/.bashrc
    zsh:   eval "$(millstream completion zsh)"       in ~/.zshrc, behind compinit
    fish:  millstream completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    # Not kind.source(): of bash that asks the installed one for its version, which takes a process.
    maker = kind(root, {}, "millstream", "_MILLSTREAM_COMPLETE")
    script = maker.source_template % maker.source_vars()
    return Answer({"shell": shell, "script": script, "install": _INSTALL[shell]}, script)
