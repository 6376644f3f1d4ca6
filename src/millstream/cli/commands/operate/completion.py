"""`millstream completion`: prints the script that completes commands, flags and names."""

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
    """Print the script that lets SHELL complete commands, flags, topics and groups.

    Topics, groups and views are those of the broker, which has a second to answer.

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
