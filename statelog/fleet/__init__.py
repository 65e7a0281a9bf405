"""Stores that outlive their machine: shipped to a bucket, a folder or Postgres, and taken over by any other machine.

```python
fleet = statelog.fleet.connect("s3://bucket/agents", cache="/var/cache/agents")
with fleet.open("ticket-42") as store:
    store.thread("chat").commit({...}, durable="remote")
```
"""

from statelog.fleet.connection import connect
from statelog.fleet.fleet import Fleet, Problem, StoreStatus, Stranded
from statelog.fleet.remote import RemoteStatus
from statelog.fleet.shared_store import share
from statelog.late import listing

__all__ = ["Fleet", "Problem", "RemoteStatus", "StoreStatus", "Stranded", "connect", "share"]

__dir__ = listing(__name__)
