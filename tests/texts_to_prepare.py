"""Small texts that tests of `prepare` damage or change."""

import json

PLAIN = "".join(
    f"The judge reads the letter number {i}. The clerk opens the door.\n"
    "The baker hides a candle in the tower.\n\n"
    for i in range(12)
)
BAD_BYTE = PLAIN.encode().replace(b"baker", b"b\xff\xfeker", 1)


def records(*lines: str) -> bytes:
    """Three good lines of JSON, and these."""
    good = json.dumps({"text": "The judge reads. The clerk writes."})
    return "\n".join([good, good, good, *lines]).encode()
