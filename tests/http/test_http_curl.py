"""``docs/curl.md`` is run as it stands, against a whole node with the demo agent."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.doubles.nodes import API_KEY, ROOT, Node, demo_agent

PAGE = ROOT / "docs" / "curl.md"
SAID = """\
idle
1
{instant}
{uuid}
3
client_tool_acked
Row 3 is highlighted.
done
client__web__highlight_row
run_completed
highlight row 3
rules
echo
idle
unauthorized
client_left
"""
FORMS = {"{instant}": r"20\d\d-[-\d]+T[:.\d]+Z", "{uuid}": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_does_the_whole_job(tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"```bash\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    with Node(tmp_path / "node", agents=[demo_agent(tmp_path / "demo")]) as node:
        ran = subprocess.run(
            ["bash", "-c", script],
            env={"PATH": os.environ["PATH"], "BASE": node.url, "KEY": API_KEY, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        node.assert_clean()
    assert ran.returncode == 0, ran.stderr
    wanted = re.escape(SAID)
    for name, form in FORMS.items():
        wanted = wanted.replace(re.escape(name), form)
    assert re.fullmatch(wanted, ran.stdout), ran.stdout
