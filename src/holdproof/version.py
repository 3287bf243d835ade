"""The version of the package: a constant, since asking the installed metadata for it imports a parser of mails."""

from typing import Final

VERSION: Final = "0.1.0"
