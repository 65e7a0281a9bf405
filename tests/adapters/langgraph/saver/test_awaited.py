"""A read sees the writes begun before it on the same saver, even if their results are not awaited."""

import asyncio
import threading

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.base import empty_checkpoint

from statelog.adapters.langgraph import StatelogSaver

READS = {
    "aget_tuple": lambda saver, config: saver.aget_tuple(config),
    "alist": lambda saver, config: anext(saver.alist(config)),
    "get_tuple": lambda saver, config: asyncio.to_thread(saver.get_tuple, config),
    "list": lambda saver, config: asyncio.to_thread(lambda: next(iter(saver.list(config)))),
}


class Slow(StatelogSaver):
    """A saver that stores writes of tasks only when the test allows it."""

    def put_writes(self, *args, **kwargs):
        assert self.gate.wait(10)
        super().put_writes(*args, **kwargs)


def config_of(name):
    return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}


@pytest.fixture
def saver(store):
    saver = Slow(store)
    saver.gate = threading.Event()
    yield saver
    saver.gate.set()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_read_sees_a_write_begun_before_it(saver, read, is_cancelled):
    async def main():
        at = await saver.aput(config_of("t"), empty_checkpoint(), {}, {})
        other = await saver.aput(config_of("other"), empty_checkpoint(), {}, {})
        writing = asyncio.create_task(saver.aput_writes(at, [("x", 1)], "task"))
        await asyncio.sleep(0.05)  # It is running, and waits for the gate.
        if is_cancelled:
            writing.cancel()
        reading = asyncio.create_task(read(saver, config_of("t")))
        await asyncio.wait_for(read(saver, other), 5)  # It concerns another thread, so it does not wait.
        await asyncio.sleep(0.05)
        assert not reading.done()
        saver.gate.set()
        found = await reading
        await asyncio.wait([writing])
        return found.pending_writes

    assert asyncio.run(main()) == [("task", "x", 1)]


def test_many_reads_and_writes_do_not_deadlock(saver):
    """There are more reads and writes than threads in the pool."""

    async def main():
        at = await saver.aput(config_of("t"), empty_checkpoint(), {}, {})
        calls = []
        for number in range(50):
            calls += [saver.aput_writes(at, [("x", number)], f"task {number}"), saver.aget_tuple(config_of("t"))]
        asyncio.get_running_loop().call_later(0.1, saver.gate.set)
        found = await asyncio.wait_for(asyncio.gather(*calls), 30)
        return [len(each.pending_writes) for each in found[1::2]]

    assert all(count >= number for number, count in enumerate(asyncio.run(main()), 1))


def test_a_read_does_not_raise_the_error_of_a_write(saver):
    async def main():
        at = await saver.aput(config_of("t"), empty_checkpoint(), {}, {})
        writing = asyncio.create_task(saver.aput_writes(at, 5, "task"))
        await asyncio.sleep(0.05)
        reading = asyncio.create_task(saver.aget_tuple(config_of("t")))
        saver.gate.set()
        assert (await reading).pending_writes == []
        with pytest.raises(Exception, match="writes"):
            await writing

    asyncio.run(main())


class Reading(StatelogSaver):
    """A saver whose writes read what was there before, as one that checks or logs them does."""

    def put(self, config, *args):
        self.get(config)
        list(self.list(config))
        return super().put(config, *args)

    def put_writes(self, config, *args, **kwargs):
        self.get_tuple(config)
        super().put_writes(config, *args, **kwargs)


def test_writes_that_read_wait_neither_for_themselves_nor_for_each_other(store):
    async def main():
        saver = Reading(store)
        at = await saver.aput(config_of("t"), empty_checkpoint(), {}, {})
        writes = [saver.aput_writes(at, [("x", number)], f"task {number}") for number in range(40)]
        await asyncio.gather(*writes, *(saver.aput(at, empty_checkpoint(), {}, {}) for _put in range(10)))
        await saver.aput_writes(at, [("x", 40)], "task 40")
        return len((await saver.aget_tuple(at)).pending_writes)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 41
