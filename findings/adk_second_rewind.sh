#!/usr/bin/env bash
# Google ADK: a rewind to a turn that an earlier rewind has dropped brings other dropped turns back.
#
# Versions: google-adk 2.13.0, Python 3.12.
#
# A session has the turns 1, 2 and 3. A rewind to before turn 2 leaves turn 1. A second rewind to before turn 3, which a
# page that was not reloaded still shows, is accepted. Then the conversation is turn 1 and turn 2: the walk over rewinds
# starts at the newest event, jumps to the first event of turn 3, and never sees the first rewind.
#
# A window of recent events has the same effect without a second rewind. If the turn that a rewind names is before the
# window, the rewind is ignored, and the turns that it dropped are live again.
#
# We expected a rewind to a dropped turn to be refused, as a rewind to an unknown turn is.
#
# Output seen:
#   after the first rewind: ['1']
#   after the second rewind: ['1', '2']
#   the last two events, after one rewind: ['3']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q google-adk==2.13.0
cat > "$folder/probe.py" <<'PY'
import asyncio
import sys
import warnings

warnings.simplefilter("ignore")

from google.adk.events import Event  # noqa: E402
from google.adk.events._rewind_events import _apply_rewinds  # noqa: E402
from google.adk.sessions import InMemorySessionService  # noqa: E402
from google.adk.sessions._rewind_utils import rewind_session  # noqa: E402
from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: E402
from google.genai import types  # noqa: E402

NAMES = {"app_name": "desk", "user_id": "ann", "session_id": "ticket"}


def live(session):
    """Return the texts that the next prompt has: the flow of a model calls this function."""
    return [event.content.parts[0].text for event in _apply_rewinds(session.events)]


async def main():
    service = InMemorySessionService()
    session = await service.create_session(**NAMES)
    for turn in ("1", "2", "3"):
        content = types.Content(role="user", parts=[types.Part(text=turn)])
        await service.append_event(session, Event(author="user", invocation_id=turn, content=content))
    seen = []
    for before in ("2", "3"):
        session = await service.get_session(**NAMES)
        await rewind_session(session_service=service, session=session, rewind_before_invocation_id=before)
        seen.append(live(await service.get_session(**NAMES)))
        if before == "2":
            seen.append(live(await service.get_session(**NAMES, config=GetSessionConfig(num_recent_events=2))))
    first, window, second = seen
    print(f"after the first rewind: {first}")
    print(f"after the second rewind: {second}")
    print(f"the last two events, after one rewind: {window}")
    return seen


sys.exit(asyncio.run(main()) != [["1"], ["3"], ["1", "2"]])
PY
"$folder/venv/bin/python" "$folder/probe.py"
