"""Where the example agent and the example page are: in a checkout, or inside an installed package. Owns nothing else.

The wheel carries both below ``gateway/_examples`` (pyproject.toml), so that nothing of ours is installed under the
general name ``examples``.
"""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parents[1]


def example_folder(name: Literal["demo", "demo_agent"]) -> Path:
    """The absolute path of an example's folder. Raises FileNotFoundError for an installation without it."""
    for folder in (_PACKAGE / "_examples" / name, _PACKAGE.parent / "examples" / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"this installation of toolrelay lacks its example {name}")
