"""``docs/agents.md`` names every reason that this adapter gives for a failed run, and each setting of limits."""

import re
from pathlib import Path
from typing import get_args

from adapters.stdio.launch import LaunchFault, ProcessLimits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "adapters/stdio").glob("*.py"))


def test_every_reason_of_a_failed_run_is_explained():
    reasons = set(re.findall(r'RunFailure\.of\("([a-z_]+)"', SOURCE)) | set(get_args(LaunchFault))
    assert len(reasons) > 15
    assert sorted(reason for reason in reasons if f"`{reason}`" not in PAGE) == []


def test_every_bound_of_a_process_but_core_dumps_has_a_setting():
    settings = {"open_files": "max_open_files", "memory_bytes": "max_memory_mib", "file_bytes": "max_file_mib"}
    settings["cpu_s"] = "max_cpu_s"
    assert set(ProcessLimits.__dataclass_fields__) == {*settings, "core_bytes"}
    assert all(f"`agents.{name}`" in PAGE for name in settings.values())
