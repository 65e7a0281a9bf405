"""A session of the OpenAI Agents SDK."""

from __future__ import annotations

from adapter_driver import Driver

from statelog.adapters.openai_agents import StatelogSession


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


class Sessions(Driver):
    kills = ("add", "delete")
    unstorable = *Driver.unstorable, nested(100_000)

    async def add(self, name, *values):
        await StatelogSession(name, self.store).add_items([{"role": "user", "content": value} for value in values])

    async def read(self, name):
        items = await StatelogSession(name, self.store).get_items()
        assert all(list(item) == ["role", "content"] for item in items)
        return [item["content"] for item in items]

    async def delete(self, name):
        await StatelogSession(name, self.store).clear_session()

    def thread_ids(self, name):
        return [f"openai:{name}"]
