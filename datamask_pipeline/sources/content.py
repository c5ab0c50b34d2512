"""When two documents say the same. Knows no document beyond its text.

The stored text stays as it came; only the hash is taken of the normal form.
"""

import hashlib
import unicodedata


def normal_form(text: str) -> str:
    """Unicode NFC, with every run of white space one space and none at the ends."""
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return " ".join(composed.split())


def content_hash(text: str) -> str:
    """SHA-256 of the normal form's UTF-8 bytes, in hexadecimal.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """
    return hashlib.sha256(normal_form(text).encode("utf-8")).hexdigest()
