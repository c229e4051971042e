"""What ``--dev`` and ``demo`` add to a configuration. Owns the demo agent's table."""

import sys

import msgspec

from gateway.config.advice import DEV_LABEL
from gateway.config.examples import example_folder
from gateway.config.secret import Secret
from gateway.config.settings import Agent, ApiKey, Settings
from gateway.config.state import state_folder

DEMO_AGENT = "demo"


def dev_settings(settings: Settings, api_key: str) -> Settings:
    """The settings with ``api_key`` and, unless one of its name is there, the demo agent."""
    keys = [key for key in settings.auth.api_keys if key.label != DEV_LABEL]
    keys.append(ApiKey(label=DEV_LABEL, key=Secret(api_key)))
    agents = settings.agents
    if all(agent.name != DEMO_AGENT for agent in agents):
        agents = (*agents, demo_agent(settings))
    auth = msgspec.structs.replace(settings.auth, api_keys=tuple(keys))
    return msgspec.structs.replace(settings, auth=auth, agents=agents)


def demo_agent(settings: Settings) -> Agent:
    """The agent of the example, in this interpreter, with a folder of its own for each session.

    It is started by its path, as its own folder is no place to import anything from; isolated (``-I``), so that no
    ``PYTHON*`` variable or package of the user changes it.
    """
    return Agent(
        name=DEMO_AGENT,
        command=(sys.executable, "-I", str(example_folder("demo_agent")), "serve", "--stdio"),
        cwd=f"{state_folder(settings)}/demo/{{session_id}}",
    )
