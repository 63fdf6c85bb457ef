"""Text that was pasted from notes or a script -> the words of its commands, as a shell would split them. Pure.

`shlex` cannot: it takes the end of a line for a space, and a `#` inside a word for a comment.
"""

import re
from dataclasses import dataclass, field

from app.errors import ProfileInvalid

_SHELL_VALUE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[^}\n]*\}|\([^)\n]*\))|`[^`\n]*`")
_REDIRECTION = re.compile(r"&>>?|<<<?|<>|[<>]&?|>>|>\|")
# In double quotes a backslash stands for itself before anything else.
_ESCAPED_IN_QUOTES = '$`"\\'


class CommandLineInvalid(ProfileInvalid):
    """A command line from which no profile can be made; `problems` says which words are the reason."""

    code = "command-line-invalid"


@dataclass(frozen=True, slots=True)
class ShellText:
    """The commands in a text, each as its words; operators and redirections are gone.

    `unexpanded` is what a shell would have replaced: variables, commands, `~`. `joined` holds the first word of each
    piece that a shell would have taken for a command of its own, and that goes on with the one before it.
    """

    commands: tuple[tuple[str, ...], ...]
    unexpanded: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()


def read_text(text: str) -> ShellText:
    """Split a text into commands. Raises CommandLineInvalid where a quote is never closed."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.run()
    commands: list[tuple[str, ...]] = []
    joined = []
    for command in scanner.commands:
        # A line that was commented out in the middle ends the command for a shell; the writer meant it to go on.
        if commands and command[0].startswith("-"):
            joined.append(command[0])
            commands[-1] += command
        else:
            commands.append(command)
    return ShellText(tuple(commands), tuple(dict.fromkeys(scanner.unexpanded)), tuple(joined))


@dataclass(slots=True)
class _Scanner:
    text: str
    at: int = 0
    commands: list[tuple[str, ...]] = field(default_factory=list)
    unexpanded: list[str] = field(default_factory=list)
    _words: list[str] = field(default_factory=list)
    _word: str | None = None
    _skips_word: bool = False

    def run(self) -> None:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()

    def _step(self, character: str) -> None:
        if character == "\\":
            self._escape()
        elif character == "'":
            self._add(self._until_quote("'"))
        elif character == '"':
            self._double_quoted()
        elif character == "#" and self._word is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif redirection := _REDIRECTION.match(self.text, self.at):
            self._redirect(redirection.group())
        elif character in "\n;|&":
            self._end_command()
            self.at += 1
        elif character.isspace():
            self._end_word()
            self.at += 1
        else:
            self._plain(character)

    def _plain(self, character: str) -> None:
        if character == "~" and self._word is None:
            self.unexpanded.append("~")
        elif value := _SHELL_VALUE.match(self.text, self.at):
            self.unexpanded.append(value.group())
            self._add(value.group())
            self.at = value.end()
            return
        self._add(character)
        self.at += 1

    def _escape(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following != "\n":
            self._add(following)

    def _double_quoted(self) -> None:
        self._add("")
        opened = self.at
        self.at += 1
        while (character := self.text[self.at : self.at + 1]) != '"':
            if not character:
                raise _unclosed('"', self.text, opened)
            if character == "\\" and (following := self.text[self.at + 1 : self.at + 2]) in (*_ESCAPED_IN_QUOTES, "\n"):
                self._add("" if following == "\n" else following)
                self.at += 2
            elif value := _SHELL_VALUE.match(self.text, self.at):
                self.unexpanded.append(value.group())
                self._add(value.group())
                self.at = value.end()
            else:
                self._add(character)
                self.at += 1
        self.at += 1

    def _until_quote(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise _unclosed(quote, self.text, self.at)
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _redirect(self, operator: str) -> None:
        # `2>&1`: the number belongs to the redirection.
        if self._word is not None and self._word.isdigit():
            self._word = None
        self._end_word()
        self._skips_word = True
        self.at += len(operator)

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _end_word(self) -> None:
        if self._word is not None:
            if not self._skips_word:
                self._words.append(self._word)
            self._skips_word = False
            self._word = None

    def _end_command(self) -> None:
        self._end_word()
        self._skips_word = False
        if self._words:
            self.commands.append(tuple(self._words))
            self._words = []


def _unclosed(quote: str, text: str, at: int) -> CommandLineInvalid:
    line = text.count("\n", 0, at) + 1
    message = f"the {quote} in line {line} is never closed"
    return CommandLineInvalid(f"the command line cannot be read: {message}", [{"field": quote, "message": message}])
