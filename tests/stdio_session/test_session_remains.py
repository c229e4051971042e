"""The check that every test here ends with sees what it is there for: a process, a task, a descriptor, a call."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.doubles.agent_world import SAY, World, call, eventually


@pytest.fixture
async def settled(world: World):
    before = await world.remains()
    return world, before


async def leftovers(world: World, before: object) -> str:
    with pytest.raises(AssertionError, match="left:") as info:
        await world.settles(before, within=0.2)  # pyright: ignore[reportArgumentType]
    return str(info.value)


async def test_a_process_is_seen(settled):
    world, before = settled
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        assert str(process.pid) in await leftovers(world, before)
    finally:
        process.kill()
        process.wait()
    await world.settles(before)


async def test_a_zombie_is_seen(settled):
    world, before = settled
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert str(process.pid) in await leftovers(world, before)
    process.wait()
    await world.settles(before)


async def test_a_task_is_seen(settled):
    world, before = settled
    task = asyncio.create_task(asyncio.sleep(60), name="left behind")
    assert "left behind" in await leftovers(world, before)
    task.cancel()
    await world.settles(before)


async def test_a_descriptor_is_seen(settled):
    world, before = settled
    descriptor = os.open("/dev/null", os.O_RDONLY)
    await leftovers(world, before)
    os.close(descriptor)
    await world.settles(before)


async def test_an_open_call_is_seen(settled):
    world, before = settled
    talk = await world.talk()
    await talk.register()
    await talk.say(call(), SAY)
    await talk.dispatched()
    talk._reader.close()
    assert "calls=1" in await leftovers(world, before)
    await talk.close()
    await eventually(lambda: talk.id not in world.gateway.owners._runners)
