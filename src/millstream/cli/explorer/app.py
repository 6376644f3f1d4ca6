"""The Textual application: its style and its first screen."""

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from millstream.cli.explorer.screens.home import Home
from millstream.cli.explorer.screens.topic import TopicScreen
from millstream.cli.explorer.session import Session
from millstream.client import Client


class Explorer(App[None]):
    """The caller owns the client and closes it when the explorer has ended."""

    TITLE = "millstream explore"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.back", "Back"),
        Binding("question_mark", "screen.toggle_keys", "Keys", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
        # Not first: in a line of text it copies.
        Binding("ctrl+c", "quit", "Quit", show=False),
    ]
    CSS = """
    #title { background: $primary-darken-2; color: $text; text-style: bold; padding: 0 1; }
    #title, #status { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    #status { background: $surface; color: $text-muted; padding: 0 1; }
    #problem { background: $error; color: $text; padding: 0 1; height: auto; max-height: 4;
        display: none; }
    #filter { height: 3; }
    TabbedContent, ContentSwitcher, TabPane { height: 1fr; }
    TabPane { padding: 0; }
    Listing { height: 1fr; }
    Listing Table { height: 1fr; }
    Listing.-empty Table { height: auto; }
    .nothing { color: $text-muted; padding: 1 2; height: 1fr; }
    #partitions { width: 40; border-right: solid $panel; }
    .-narrow #partitions { display: none; }
    Browser { width: 1fr; }
    #columns { height: 1; color: $text-muted; text-wrap: nowrap; }
    MessageList { height: 3fr; min-height: 4; scrollbar-size-horizontal: 0; }
    Browser.-empty MessageList { height: 0; min-height: 0; }
    MessageList .records--cursor { background: $block-cursor-blurred-background; }
    MessageList:focus .records--cursor { background: $block-cursor-background;
        color: $block-cursor-foreground; }
    MessageList .records--hit { background: $warning; color: $background; }
    Detail { height: 2fr; border-top: solid $panel; padding: 0 1; }
    ModalScreen { align: center middle; }
    .dialog { width: 76; max-width: 95%; height: auto; max-height: 90%; padding: 1 2;
        background: $surface; border: round $primary; }
    .dialog.wide { width: 96; }
    .dialog.danger { border: round $error; }
    .dialog .heading { text-style: bold; width: 1fr; margin-bottom: 1; }
    .dialog .hint { color: $text-muted; height: auto; }
    .dialog .buttons { height: auto; margin-top: 1; align-horizontal: right; }
    .dialog .buttons Button { margin-left: 2; }
    .dialog .fields { height: auto; }
    .dialog .fields > * { width: 1fr; }
    .dialog #value { height: 8; }
    .dialog #headers { height: 5; }
    #complaint { color: $text-error; height: auto; }
    """

    def __init__(self, client: Client, topic: str | None = None) -> None:
        super().__init__()
        self.session = Session(client)
        self._topic = topic

    def on_mount(self) -> None:
        self.push_screen(Home(self.session))
        if self._topic is not None:
            self.push_screen(TopicScreen(self.session, self._topic))
